"""Plots as SVG inside a page: lines over two axes, bars, and their legend. They need no script and no other file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paddock.html.components import legend, swatch
from paddock.html.markup import Html, join, svg, tag

WIDTH = 920
"""Pixels of every plot before the page scales it."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 16, 14, 42
_COLOURS = 12
"""Colours of series, `.c0` and up in the style sheet; the next would repeat the first."""
_SCALES: Mapping[str, Callable[[float], float]] = {
    "linear": float, "log": math.log, "nines": lambda value: -math.log(100 - value),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis from the least to the largest value.

    `scale` is linear, logarithmic, or for per cents up to below 100 one that gives each further nine as much room.
    """

    label: str
    low: float
    high: float
    ticks: tuple[float, ...] = ()
    scale: Literal["linear", "log", "nines"] = "linear"

    def part(self, value: float) -> float:
        """Return where a value lies, 0 to 1 from end to end."""
        if self.high <= self.low:
            return 0.5
        low, high, at = map(_SCALES[self.scale], (self.low, self.high, value))
        return (at - low) / (high - low)

    @classmethod
    def decades(cls, label: str, values: Iterable[float]) -> Axis:
        """Return a logarithmic axis that holds the values, with a tick at 1, 2 and 5 of each power of ten."""
        seen = [*values]
        low, high = min(seen), max(seen)
        powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
        steps = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        first = max(step for step in steps if step <= low)
        last = min(step for step in steps if step >= high)
        return cls(label, first, last, tuple(step for step in steps if first <= step <= last), "log")

    @classmethod
    def over(cls, label: str, values: Iterable[float]) -> Axis:
        """Return an axis from 0 with round ticks that holds the values, none of them below 0."""
        high = max(values, default=1.0)
        step = _round_step(high / 5 or 1.0)
        ticks = tuple(step * number for number in range(math.ceil(high / step) + 1))
        return cls(label, ticks[0], ticks[-1], ticks)


@dataclass(frozen=True, slots=True)
class Series:
    """Line through points; `colour` is a number, and series of one number have one colour."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False
    """A bound rather than a measurement. It has no entry of its own in the legend."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Point with a word next to it; `low` and `high` are the ends of an interval along x."""

    x: float
    y: float
    text: str
    colour: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Vertical line across the plot, or the band up to `end`."""

    x: float
    text: str = ""
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over two axes."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    marks: Sequence[Mark] = field(default=())
    rules: Sequence[Rule] = field(default=())
    height: int = 300

    def svg(self) -> Html:
        """Return the plot with the names of its series."""
        names = {item.label: item.colour for item in self.series if not item.dashed}
        entries = [[swatch(colour % _COLOURS), label] for label, colour in names.items()]
        drawn = [*self._rules(), *self._grid(), *self._lines(), *self._marks()]
        return join(
            legend(entries) if len(entries) > 1 else None, svg(self.title, WIDTH, self.height, *drawn, class_="plot")
        )

    def _place(self, x: float, y: float) -> tuple[float, float]:
        width, height = WIDTH - _LEFT - _RIGHT, self.height - _TOP - _BOTTOM
        return _LEFT + width * self.x.part(x), _TOP + height * (1 - self.y.part(y))

    def _grid(self) -> Iterable[Html]:
        bottom = self.height - _BOTTOM
        for tick in self.y.ticks:
            _, y = self._place(self.x.low, tick)
            yield _line(_LEFT, y, WIDTH - _RIGHT, y, "grid")
            yield _text(_LEFT - 8, y + 4, f"{tick:,.10g}", "end")
        for tick in self.x.ticks:
            x, _ = self._place(tick, self.y.low)
            yield _line(x, bottom, x, bottom + 4, "axis")
            yield _text(x, bottom + 18, f"{tick:,.10g}", "middle")
        yield _line(_LEFT, bottom, WIDTH - _RIGHT, bottom, "axis")
        yield _text((_LEFT + WIDTH - _RIGHT) / 2, self.height - 6, self.x.label, "middle")
        middle = _TOP + (bottom - _TOP) / 2
        yield _text(12, middle, self.y.label, "middle", transform=f"rotate(-90 12 {middle:.0f})")

    def _lines(self) -> Iterable[Html]:
        for series in self.series:
            places = [self._place(x, y) for x, y in series.points]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            kind = f"curve {'bound ' if series.dashed else ''}{_colour(series.colour)}"
            yield tag("polyline", tag("title", series.label) if series.label else None, points=path, class_=kind)
            if not series.dashed and len(places) <= 12:
                yield from (_circle(x, y, 3.2, f"dot {_colour(series.colour)}") for x, y in places)

    def _marks(self) -> Iterable[Html]:
        for mark in self.marks:
            x, y = self._place(mark.x, mark.y)
            colour = _colour(mark.colour)
            if mark.low is not None and mark.high is not None:
                (left, _), (right, _) = self._place(mark.low, mark.y), self._place(mark.high, mark.y)
                yield _line(left, y, max(right, left + 0.1), y, f"interval {colour}")
            yield _circle(x, y, 5, f"ring {colour}")
            if mark.text:
                side, anchor = (-9, "end") if x > WIDTH * 0.86 else (9, "start")
                yield _text(x + side, y + 15, mark.text, anchor, class_=None)

    def _rules(self) -> Iterable[Html]:
        bottom = self.height - _BOTTOM
        for number, rule in enumerate(self.rules):
            x, _ = self._place(rule.x, self.y.low)
            if rule.end is not None:
                end, _ = self._place(rule.end, self.y.low)
                width, height = max(end - x, 1.0), bottom - _TOP
                yield tag("rect", tag("title", rule.text), x=x, y=_TOP, width=width, height=height, class_="band")
                continue
            yield _line(x, _TOP, x, bottom, "axis dotted")
            side, anchor = (-6, "end") if x > WIDTH * 0.4 else (6, "start")
            # One above the other: they may lie close together.
            yield _text(x + side, bottom - 8 - 15 * number, rule.text, anchor)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def _circle(x: float, y: float, r: float, class_: str) -> Html:
    return tag("circle", cx=x, cy=y, r=r, class_=class_)


def _text(
    x: float, y: float, words: str, anchor: str, *, class_: str | None = "soft", transform: str | None = None
) -> Html:
    return tag("text", words, x=x, y=y, text_anchor=anchor, transform=transform, class_=class_)


def _round_step(step: float) -> float:
    """Return 1, 2, 2.5 or 5 times a power of ten, at least as large."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * (1 - 1e-9))


def _colour(number: int) -> str:
    return f"c{number % _COLOURS}"
