"""Parts that the pages of benchmarks and of loads share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddock.bench.measurement.statistics import PERCENTS, Percentile, Summary, figure, spread
from paddock.html.charts import Axis, Mark, Plot, Series
from paddock.html.components import header, section, table
from paddock.html.markup import Html, join, tag

_RINGED = (50, 90, 99)
"""Percentiles that have a ring."""


def top(
    kicker: str, title: str, where: Iterable[str], because: str, figures: Iterable[tuple[str, str, str]] = ()
) -> Html:
    """Return the header. `because` says why the numbers are not to be trusted; a figure is a value, its name and of
    what it is."""
    state, verdict = ("warning", because) if because else ("ready", "No problems found")
    shown = ((value, join(label, tag("span", of, class_="pair"))) for value, label, of in figures)
    return header(kicker, title, where, state, verdict, shown)


def percentiles(unit: str, rows: Iterable[tuple[str, Summary]]) -> Html:
    """Return the table of named samples, each percentile with its 95 % interval."""
    columns = [(unit, ""), ("count", "n"), *((f"p{percent:g}", "n") for percent in PERCENTS), ("longest", "n")]
    cells = []
    for name, summary in rows:
        found = [summary.percentile(percent) for percent in PERCENTS]
        shown = [f"n {summary.count} too small" if item is None else _interval(item) for item in found]
        cells.append((name, str(summary.count), *shown, figure(summary.maximum)))
    return table(f"Percentiles of {unit}", columns, cells, hide_caption=True)


def _interval(item: Percentile) -> str:
    bounds = "" if item.low is None or item.high is None else f" [{figure(item.low)}, {figure(item.high)}]"
    return f"{figure(item.value)}{bounds}"


def as_text(lines: Iterable[str]) -> Html:
    """Return what the terminal prints."""
    return section("as-text", "As text", tag("pre", "\n".join(lines)))


def distributions(title: str, x: Axis, curves: Iterable[tuple[str, Sequence[float], Summary]]) -> Html:
    """Return cumulative curves of samples with their names, and rings at their percentiles with 95 % intervals."""
    lines, marks = list[Series](), list[Mark]()
    for colour, (label, samples, summary) in enumerate(curves):
        drawn = spread(samples)
        points = [(value, min(99.9, 100 * (number + 0.5) / len(drawn))) for number, value in enumerate(drawn)]
        lines.append(Series(label, points, colour))
        marks += [
            Mark(item.value, item.percent, "", colour, item.low, item.high)
            for item in summary.percentiles
            if item.percent in _RINGED
        ]
    y = Axis(f"per cent of the {title.lower()}", 0, 99.9, (0, 50, 90, 99, 99.9), "nines")
    return Plot(title, x, y, lines, marks, height=340).svg()
