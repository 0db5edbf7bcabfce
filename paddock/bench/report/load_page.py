"""The page of a load on a server: one HTML file with plots."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from paddock.bench.load.answer import Answer
from paddock.bench.load.measure import text as words
from paddock.bench.load.measure.latency import summary_ms
from paddock.bench.load.measure.report import LoadReport
from paddock.bench.measurement.statistics import figure, summarise
from paddock.bench.report.components import as_text, distributions, percentiles, top
from paddock.html import components
from paddock.html.charts import Axis, Plot, Rule, Series
from paddock.html.components import section
from paddock.html.markup import Html, join, tag

_DRAWN = ("TTFT", "ITL", "E2E")
_BINS = 60
"""Intervals of the time over which tokens are counted."""


def page(report: LoadReport, answers: Sequence[Answer], taken_at: datetime | None = None) -> str:
    """Return the report as HTML."""
    target = report.plan.target
    title = f"{report.model} at {target.origin}{target.path}"
    when = (taken_at or datetime.now(UTC)).isoformat(timespec="seconds")
    return components.page(
        title,
        top("Load", title, [words.offered(report.plan), when], _because(report), _figures(report)),
        tag("main", _measured(report, answers) if report.succeeded else None, as_text(words.lines(report))),
    )


def _measured(report: LoadReport, answers: Sequence[Answer]) -> Iterator[Html]:
    note = "Part of the values that are at most so large. Rings: percentiles, their 95 % intervals in the shade."
    yield section("latencies", "Latencies", _latencies(report), note=note)
    note = "Shaded: the steady window, with at least 80 % of the most requests at once."
    yield section("over-time", "Requests at once, and tokens a second", _over_time(report, answers), note=note)


def _because(report: LoadReport) -> str:
    if report.interrupted:
        return "Interrupted: these are the results until then."
    return f"Not to be trusted: {report.problems[0]}" if report.problems else ""


def _figures(report: LoadReport) -> Iterator[tuple[str, str, str]]:
    steady = report.steady or report.full
    rate = steady.output_tokens_per_second if steady else None
    window = "steady window" if report.steady else "whole run"
    yield figure(rate), "output tokens/s", window
    yield figure(steady.requests_per_second if steady else None), "requests/s", window
    for title, name in (("TTFT", "ttft"), ("TPOT", "tpot")):
        summary = summary_ms(getattr(report.latencies, name))
        tail = summary.percentile(99) if summary else None
        more = "p99: too few samples" if tail is None else f"p99 {figure(tail.value)} ms"
        yield ("unknown" if summary is None else f"{figure(summary.median)} ms"), f"{title}, median", more
    yield f"{report.succeeded} of {report.measured}", "requests succeeded", f"{report.peak_concurrency} at once at most"
    if report.goodput:
        limit = report.goodput.limit.name
        yield f"{report.goodput.attained:.1%}", "within the limits", f"{limit}, {figure(report.goodput.per_second)}/s"


def _latencies(report: LoadReport) -> Html:
    """Return cumulative curves in ms on a logarithmic axis, as they differ by orders of magnitude, and percentiles."""
    all_ms = {title: [1000 * value for value in getattr(report.latencies, name)] for title, name in words.ROWS}
    rows = [(title, summarise(samples)) for title, samples in all_ms.items() if samples]
    over_zero = ((title, [value for value in all_ms[title] if value > 0]) for title in _DRAWN)
    drawn = [(title, samples, summarise(samples)) for title, samples in over_zero if len(samples) > 1]
    values = [value for _, samples, _ in drawn for value in samples]
    curves = distributions("Latencies", Axis.decades("ms", values), drawn) if drawn else None
    return join(curves, percentiles("ms", rows))


def _over_time(report: LoadReport, answers: Sequence[Answer]) -> Html:
    exchanges = [answer.exchange for answer in answers]
    changes = sorted([(one.sent, 1) for one in exchanges] + [(one.ended, -1) for one in exchanges])
    times = [at for at, _ in changes]
    counts = list(itertools.accumulate(change for _, change in changes))
    stairs = [(times[0], 0.0)]
    for at, before, after in zip(times, [0, *counts], counts, strict=False):
        stairs += [(at, float(before)), (at, float(after))]
    rules = [Rule(report.steady.window.start, "steady", report.steady.window.end)] if report.steady else []

    def plot(label: str, points: Sequence[tuple[float, float]], colour: int) -> Html:
        x, y = Axis.over("seconds", times), Axis.over(label, [y for _, y in points])
        return Plot(label, x, y, [Series("", points, colour)], rules=rules, height=210).svg()

    at_once = plot("requests at once", stairs, 0)
    chunks = [chunk for answer in answers for chunk in answer.chunks]
    if any(chunk.tokens is None for chunk in chunks) or not chunks:
        return at_once
    width = (times[-1] - times[0]) / _BINS or 1.0
    bins = [0.0] * (_BINS + 1)
    for chunk in chunks:
        bins[min(_BINS, max(0, int((chunk.time - times[0]) / width)))] += (chunk.tokens or 0) / width
    points = [(times[0] + (number + 0.5) * width, rate) for number, rate in enumerate(bins[:_BINS])]
    return join(at_once, plot("output tokens/s", points, 2))
