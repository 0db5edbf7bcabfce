"""The page of a load on a server: one HTML file with plots."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from paddock.bench.load.answer import Answer
from paddock.bench.load.measure import text as words
from paddock.bench.load.measure.latency import summary_ms
from paddock.bench.load.measure.report import Report, Throughput
from paddock.bench.measurement.statistics import Summary
from paddock.bench.report.charts import Axis, Mark, Plot, Rule, Series
from paddock.bench.report.markup import figures, listed, section, table, text, whole

_LATENCIES = (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2E", "e2e"), ("queue wait", "queue_wait"))
_DRAWN = ("ttft", "itl", "e2e")
_PERCENTS = (50.0, 90.0, 99.0)
_BINS = 60
"""Intervals of the time over which tokens are counted."""


def page(report: Report, answers: Sequence[Answer], taken_at: datetime | None = None) -> str:
    """Return the report as HTML."""
    target = report.plan.target
    title = f"{report.model} at {target.origin}{target.path}"
    when = (taken_at or datetime.now(UTC)).isoformat(timespec="seconds")
    body = [
        f"<h1>{text(title)}</h1>",
        f"<p class=soft>{text(words.offered(report.plan))}; {text(when)}</p>",
        _trust(report),
        figures(_figures(report)),
    ]
    if report.succeeded:
        note = "Part of the values that are at most so large. Rings: percentiles, their 95 % intervals in the shade."
        body.append(section("Latencies", _distributions(report) + _percentiles(report), note))
        note = "Shaded: the steady window, with at least 80 % of the most requests at once."
        body.append(section("Requests at once, and tokens a second", _over_time(report, answers), note))
        body.append(section("Throughput", _throughputs(report)))
    body.append(section("Failures", listed(_failures(report))))
    body.append(section("Reasons for doubt", listed(list(report.problems))))
    body.append(section("As text", f"<pre>{text(chr(10).join(words.lines(report)))}</pre>"))
    return whole(title, body)


def _trust(report: Report) -> str:
    if report.interrupted:
        return "<p class=bad><b>Interrupted: these are the results until then.</b></p>"
    if report.problems:
        return f"<p class=bad><b>Not to be trusted:</b> {text(report.problems[0])}</p>"
    return "<p class=good><b>Nothing speaks against these numbers.</b></p>"


def _figures(report: Report) -> Iterator[tuple[str, str, str]]:
    steady = report.steady or report.full
    rate = steady.output_tokens_per_second if steady else None
    window = "steady window" if report.steady else "whole run"
    yield _value(rate), "output tokens/s", window
    yield _value(steady.requests_per_second if steady else None), "requests/s", window
    for title, name in (("TTFT", "ttft"), ("TPOT", "tpot")):
        summary = summary_ms(getattr(report.latencies, name))
        tail = summary.percentile(99) if summary else None
        more = "p99: too few samples" if tail is None else f"p99 {_value(tail.value)} ms"
        yield ("unknown" if summary is None else f"{_value(summary.median)} ms"), f"{title}, median", more
    yield f"{report.succeeded} of {report.measured}", "requests succeeded", f"{report.peak_concurrency} at once at most"
    if report.goodput:
        limit = report.goodput.limit.name
        yield f"{report.goodput.attained:.1%}", "within the limits", f"{limit}, {_value(report.goodput.per_second)}/s"


def _distributions(report: Report) -> str:
    """Return cumulative curves of the latencies, in ms on a logarithmic axis: they differ by orders of magnitude."""
    lines, marks = list[Series](), list[Mark]()
    for colour, (title, name) in enumerate((title, name) for title, name in _LATENCIES if name in _DRAWN):
        samples = sorted(1000 * value for value in getattr(report.latencies, name) if value > 0)
        summary = summary_ms(getattr(report.latencies, name))
        if len(samples) < 2 or summary is None:
            continue
        points = [(value, min(99.9, 100 * (rank + 0.5) / len(samples))) for rank, value in _some(samples)]
        lines.append(Series(title, points, colour))
        marks += [
            Mark(item.value, item.percent, "", colour, item.low or None, item.high or None)
            for item in summary.percentiles
            if item.percent in _PERCENTS and item.value > 0
        ]
    if not lines:
        return ""
    x = Axis.decades("ms", [x for line in lines for x, _ in line.points])
    y = Axis("per cent of the values", 0, 99.9, (0, 50, 90, 99, 99.9), "nines")
    return Plot("Latencies", x, y, lines, marks, height=340).svg()


def _percentiles(report: Report) -> str:
    rows = []
    for title, name in _LATENCIES:
        summary = summary_ms(getattr(report.latencies, name))
        if summary is not None:
            tails = (_interval(summary, percent) for percent in (50.0, 90.0, 95.0, 99.0))
            rows.append((title, str(summary.count), *tails, _value(summary.maximum)))
    return table(("ms", "count", "p50", "p90", "p95", "p99", "longest"), rows)


def _interval(summary: Summary, percent: float) -> str:
    value = summary.percentile(percent)
    if value is None:
        return f"n {summary.count} too small"
    if value.low is None or value.high is None:
        return _value(value.value)
    return f"{_value(value.value)} [{_value(value.low)}, {_value(value.high)}]"


def _over_time(report: Report, answers: Sequence[Answer]) -> str:
    changes = sorted(
        [(answer.exchange.sent, 1) for answer in answers] + [(answer.exchange.ended, -1) for answer in answers]
    )
    times = [at for at, _ in changes]
    counts = list(itertools.accumulate(change for _, change in changes))
    stairs = [(times[0], 0.0)]
    for at, before, after in zip(times, [0, *counts], counts, strict=False):
        stairs += [(at, float(before)), (at, float(after))]
    rules = [Rule(report.steady.window.start, "steady", report.steady.window.end)] if report.steady else []
    x = Axis.over("seconds", times)
    at_once = Plot(
        "Requests at once", x, Axis.over("requests at once", [y for _, y in stairs]), [Series("", stairs, 0)],
        rules=rules, height=210,
    )  # fmt: skip
    chunks = [chunk for answer in answers for chunk in answer.chunks]
    if any(chunk.tokens is None for chunk in chunks) or not chunks:
        return at_once.svg()
    width = (times[-1] - times[0]) / _BINS or 1.0
    bins = [0.0] * (_BINS + 1)
    for chunk in chunks:
        bins[min(_BINS, max(0, int((chunk.time - times[0]) / width)))] += (chunk.tokens or 0) / width
    points = [(times[0] + (number + 0.5) * width, rate) for number, rate in enumerate(bins[:_BINS])]
    tokens = Plot(
        "Tokens a second", x, Axis.over("output tokens/s", [y for _, y in points]), [Series("", points, 2)],
        rules=rules, height=210,
    )  # fmt: skip
    return at_once.svg() + tokens.svg()


def _throughputs(report: Report) -> str:
    rows = [(name, *_rates(rates)) for name, rates in (("whole run", report.full), ("steady", report.steady)) if rates]
    return table(("over", "seconds", "requests/s", "output tokens/s", "input tokens/s"), rows)


def _rates(rates: Throughput) -> tuple[str, ...]:
    counts = (rates.requests_per_second, rates.output_tokens_per_second, rates.input_tokens_per_second)
    return (f"{rates.window.seconds:.2f}", *map(_value, counts))


def _failures(report: Report) -> list[str]:
    return [f"{failures.count} x {kind}: {failures.first}" for kind, failures in report.failures.items()]


def _some(samples: Sequence[float], most: int = 400) -> Iterator[tuple[int, float]]:
    """Yield some of the ordered samples with their ranks: the first, the last and evenly many between."""
    last, count = len(samples) - 1, min(len(samples), most)
    for rank in dict.fromkeys(round(number * last / max(1, count - 1)) for number in range(count)):
        yield rank, samples[rank]


def _value(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"
