"""Plots as SVG inside a page: lines over two axes, bars, and their legend. They need no script and no other file."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

WIDTH = 920
"""Pixels of every plot before the page scales it."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 16, 14, 42
_ROW, _LABEL, _VALUE = 30, 300, 210
"""Pixels of a row of bars, of the label before a bar and of the value behind it."""
_COLOURS = 6
"""Colours of series, `--c0` and up in the page's style; a seventh series would repeat the first."""

STYLE = """
svg{width:100%;height:auto;font:12px system-ui,sans-serif;overflow:visible}
svg text{fill:var(--ink)}svg .soft{fill:var(--soft)}
svg .grid{stroke:var(--line)}svg .axis{stroke:var(--soft)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:.2rem 0 .4rem;font-size:.85rem}
.legend i{display:inline-block;width:1.1rem;height:.25rem;border-radius:.15rem;margin-right:.4rem;vertical-align:.2rem}
"""


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
        low, high, at = (self._scaled(number) for number in (self.low, self.high, value))
        return (at - low) / (high - low)

    def _scaled(self, value: float) -> float:
        match self.scale:
            case "log":
                return math.log(value)
            case "nines":
                return -math.log(100 - value)
            case "linear":
                return value

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
    def over(cls, label: str, values: Iterable[float], *, from_zero: bool = True) -> Axis:
        """Return an axis with round ticks that holds the values."""
        seen = [*values]
        low, high = min(seen, default=0.0), max(seen, default=1.0)
        low = 0.0 if from_zero else low
        step = _round_step((high - low) / 5 or abs(high) / 5 or 1.0)
        first, last = math.floor(low / step), math.ceil(high / step)
        ticks = tuple(step * number for number in range(first, last + 1))
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
    """Point with a word beside it; `low` and `high` are the ends of an interval along x."""

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
class Bar:
    """Row with a bar that fills a part of what bounds it, 0 to 1; None is not known."""

    label: str
    part: float | None
    text: str
    more: str = ""


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

    def svg(self) -> str:
        """Return the plot with its legend as HTML."""
        parts = [*self._rules(), *self._grid(), *self._lines(), *self._marks()]
        return legend(self.series) + svg(self.title, self.height, parts)

    def _place(self, x: float, y: float) -> tuple[float, float]:
        width, height = WIDTH - _LEFT - _RIGHT, self.height - _TOP - _BOTTOM
        return _LEFT + width * self.x.part(x), _TOP + height * (1 - self.y.part(y))

    def _grid(self) -> Iterable[str]:
        bottom = self.height - _BOTTOM
        for tick in self.y.ticks:
            _, y = self._place(self.x.low, tick)
            yield f"<line class=grid x1={_LEFT} x2={WIDTH - _RIGHT} y1={y:.1f} y2={y:.1f} />"
            yield f"<text class=soft x={_LEFT - 8} y={y + 4:.1f} text-anchor=end>{_figure(tick)}</text>"
        for tick in self.x.ticks:
            x, _ = self._place(tick, self.y.low)
            yield f"<line class=axis x1={x:.1f} x2={x:.1f} y1={bottom} y2={bottom + 4} />"
            yield f"<text class=soft x={x:.1f} y={bottom + 18} text-anchor=middle>{_figure(tick)}</text>"
        yield f"<line class=axis x1={_LEFT} x2={WIDTH - _RIGHT} y1={bottom} y2={bottom} />"
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        yield f"<text class=soft x={middle} y={self.height - 6} text-anchor=middle>{_text(self.x.label)}</text>"
        height = _TOP + (bottom - _TOP) / 2
        yield (
            f"<text class=soft x=12 y={height:.0f} text-anchor=middle"
            f" transform='rotate(-90 12 {height:.0f})'>{_text(self.y.label)}</text>"
        )

    def _lines(self) -> Iterable[str]:
        for series in self.series:
            places = [self._place(x, y) for x, y in series.points]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            dash = " stroke-dasharray='5 4' stroke-opacity=.75" if series.dashed else ""
            width = 1.5 if series.dashed else 2.2
            yield (
                f"<polyline fill=none stroke='{_colour(series.colour)}' stroke-width={width}{dash}"
                f" stroke-linejoin=round points='{path}'><title>{_text(series.label)}</title></polyline>"
            )
            if not series.dashed and len(places) <= 12:
                yield from (
                    f"<circle fill='{_colour(series.colour)}' cx={x:.1f} cy={y:.1f} r=3.2 />" for x, y in places
                )

    def _marks(self) -> Iterable[str]:
        for mark in self.marks:
            x, y = self._place(mark.x, mark.y)
            if mark.low is not None and mark.high is not None:
                (left, _), (right, _) = self._place(mark.low, mark.y), self._place(mark.high, mark.y)
                yield (
                    f"<line stroke='{_colour(mark.colour)}' stroke-width=7 stroke-opacity=.28 stroke-linecap=round"
                    f" x1={left:.1f} x2={max(right, left + 0.1):.1f} y1={y:.1f} y2={y:.1f} />"
                )
            ring = f"fill=var(--paper) stroke='{_colour(mark.colour)}' stroke-width=2.2"
            yield f"<circle {ring} cx={x:.1f} cy={y:.1f} r=5 />"
            side, anchor = (-9, "end") if x > WIDTH * 0.86 else (9, "start")
            yield f"<text x={x + side:.1f} y={y + 15:.1f} text-anchor={anchor}>{_text(mark.text)}</text>"

    def _rules(self) -> Iterable[str]:
        bottom = self.height - _BOTTOM
        for number, rule in enumerate(self.rules):
            x, _ = self._place(rule.x, self.y.low)
            if rule.end is not None:
                end, _ = self._place(rule.end, self.y.low)
                yield (
                    f"<rect fill=var(--c4) fill-opacity=.16 x={x:.1f} y={_TOP} width={max(end - x, 1):.1f}"
                    f" height={bottom - _TOP}><title>{_text(rule.text)}</title></rect>"
                )
                continue
            yield f"<line class=axis stroke-dasharray='2 4' x1={x:.1f} x2={x:.1f} y1={_TOP} y2={bottom} />"
            side, anchor = (-6, "end") if x > WIDTH * 0.4 else (6, "start")
            height = bottom - 8 - 15 * number  # one above the other: they may lie close together
            yield f"<text class=soft x={x + side:.1f} y={height} text-anchor={anchor}>{_text(rule.text)}</text>"


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Return a row for each bar."""
    width, parts = WIDTH - _LABEL - _VALUE, []
    for number, row in enumerate(rows):
        y, filled = number * _ROW, min(row.part or 0.0, 1.0) * width
        parts.append(
            f"<text x=0 y={y + 19}>{_text(row.label)}</text>"
            f"<rect fill=var(--soft) fill-opacity=.22 x={_LABEL} y={y + 5} width={width} height=20 rx=3 />"
            f"<rect fill=var(--c0) x={_LABEL} y={y + 5} width={filled:.1f} height=20 rx=3 />"
            f"<text x={_LABEL + width + 10} y={y + 19}>{_text(row.text)}"
            f" <tspan class=soft>{_text(row.more)}</tspan></text>"
        )
    return svg(title, len(rows) * _ROW + 4, parts)


def legend(series: Sequence[Series]) -> str:
    """Return the names of the series with their colours."""
    entries = {item.label: item.colour for item in series if not item.dashed}
    if len(entries) < 2:
        return ""
    cells = (
        f"<span><i style='background:{_colour(colour)}'></i>{_text(label)}</span>" for label, colour in entries.items()
    )
    return f"<div class=legend>{''.join(cells)}</div>"


def svg(label: str, height: int, parts: Iterable[str]) -> str:
    return f"<svg role=img aria-label='{_text(label)}' viewBox='0 0 {WIDTH} {height}'>{''.join(parts)}</svg>"


def _round_step(step: float) -> float:
    """Return 1, 2, 2.5 or 5 times a power of ten, at least as large."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * (1 - 1e-9))


def _figure(value: float) -> str:
    return f"{value:,.10g}"


def _colour(number: int) -> str:
    return f"var(--c{number % _COLOURS})"


def _text(value: str) -> str:
    return html.escape(value)
