"""The page of a benchmark: one HTML file with plots."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from paddock.bench.report.charts import Axis, Bar, Mark, Plot, Rule, Series, bars
from paddock.bench.report.markup import figures, listed, section, table, text, whole
from paddock.bench.report.model import BenchDocument, Result
from paddock.bench.report.text import MODE_HEADINGS, interval, joules, mode_rows, name, number, percent, sizes

_LINES = 6
"""Distributions that one plot shows: more lie on top of each other."""
_PERCENTS = (50, 90, 99)


def page(document: BenchDocument) -> str:
    """Return the document as HTML."""
    model, device = document.model, document.device
    title = f"{model['name']} on {device['name']}"
    body = [
        f"<h1>{text(title)}</h1>",
        f"<p class=soft>{sizes(model)} parameters, weights {text(str(model['weights']))}; "
        f"engine {text(document.engine)}; {text(document.taken_at)}</p>",
        _trust(document),
    ]
    if document.results:
        body += _measured(document)
    body.append(section("Reasons for doubt", listed(_doubts(document))))
    body.append(section("Notes", listed([*document.notes, *_notes(document.results)])))
    environment = json.dumps(document.environment, indent=2)
    details = f"<details><summary>What makes it repeatable</summary><pre>{text(environment)}</pre></details>"
    body.append(section("Environment", details))
    return whole(title, body)


def _measured(document: BenchDocument) -> Iterator[str]:
    results = document.results
    best = max(results, key=lambda result: result.tokens_per_s)
    yield figures(_figures(best))
    unknown = any(result.roofline.bound is None for result in results)
    note = "A whole bar is what the bandwidth and the products that were measured beside each result allow."
    if unknown:
        note = "A whole bar is what the bandwidth measured beside each result allows; products have no roof here."
    yield section("Decode speed against the roof", _speeds(results), note)
    if curve := _throughput(document):
        note = "Dashed: the roof. Ring: the knee, above which more rows add less than 5 %."
        ridge = "" if unknown else " Dotted: the ridge, above which arithmetic bounds a step and not memory."
        yield section("Throughput by batch", curve, note + ridge)
    note = "Part of the gaps that are at most so long. Rings: percentiles, with their 95 % intervals in the shade."
    yield section("Gaps between tokens", _gaps(results) + _percentiles(results), note)
    if clocks := _clocks(document.clocks):
        yield section("Clocks, power and temperature", clocks, "Shaded: seconds in which the clocks were held low.")
    if any(result.key.get("mode") for result in results):
        note = "Busy: the part of the time in which a request ran."
        yield section("Resource modes", table(MODE_HEADINGS, mode_rows(results)), note)
    yield section("Results", _table(results))
    note = "At full use; at half use a token costs twice as much. Assumed speeds follow memory bandwidth."
    yield section("What a million tokens cost", _costs(best), note)


def _trust(document: BenchDocument) -> str:
    if not document.complete:
        return "<p class=bad><b>Interrupted: incomplete.</b></p>"
    if document.trusted:
        return "<p class=good><b>Nothing speaks against these numbers.</b></p>"
    count = len(_doubts(document))
    return f"<p class=bad><b>{count} reason{'s' * (count != 1)} for doubt</b>, which stand below.</p>"


def _figures(best: Result) -> Iterator[tuple[str, str, str]]:
    cost = best.cost[0] if best.cost else None
    yield f"{best.tokens_per_s:.1f}", "tokens/s decoding", f"{name(best)}, batch {best.key['batch']}"
    roof = best.roofline
    reads = f"{roof.achieved_gbs:.1f} of {number(roof.measured_gbs)} GB/s"
    yield percent(roof.of_measured), "of the measured roof", f"reads {reads}"
    yield f"{best.ttft.median:.0f} ms", "to the first token", f"prompt of {best.key['prompt']}"
    if cost is None:
        yield "unknown", "a million tokens", "no price"
        return
    where = cost.instance if cost.measured else f"as if on {cost.instance}"
    yield f"${cost.usd_per_million:.2f}", "a million tokens", where


def _label(result: Result) -> str:
    return f"{name(result)}, batch {result.key['batch']}, prompt {result.key['prompt']}"


def _roof(result: Result) -> float:
    """Return the tokens a second that the measured roof allows."""
    part = result.roofline.of_measured
    return result.tokens_per_s / part if part else result.tokens_per_s


def _speeds(results: Sequence[Result]) -> str:
    rows = [
        Bar(
            _label(result),
            result.roofline.of_measured,
            f"{percent(result.roofline.of_measured)}:",
            f"{result.tokens_per_s:.1f} of {_roof(result):.0f} tokens/s",
        )
        for result in results
    ]
    return bars("Decode speed of each result and its roof", rows)


def _throughput(document: BenchDocument) -> str:
    """Return throughput over the batch, with roof, knee and ridge; empty without several batches."""
    groups = _grouped(document.results, lambda result: f"{name(result)}, prompt {result.key['prompt']}")
    curves = {label: sorted(cells, key=_batch) for label, cells in groups.items() if len(cells) > 1}
    if not curves:
        return ""
    batches = sorted({_batch(result) for cells in curves.values() for result in cells})
    lines, marks = list[Series](), list[Mark]()
    for colour, (label, cells) in enumerate(curves.items()):
        lines.append(Series(label, [(_batch(result), result.tokens_per_s) for result in cells], colour))
        lines.append(Series(f"{label}: roof", [(_batch(result), _roof(result)) for result in cells], colour, True))
        for knee in document.knees:
            own = f"{knee.dtype} {knee.mode}" if knee.mode else knee.dtype
            if f"{own}, prompt {knee.prompt}" == label:
                marks.append(Mark(knee.batch, knee.tokens_per_s, "knee", colour))
    rules = [
        Rule(ridge, f"ridge of {dtype}, batch {ridge:.0f}")
        for dtype, cells in _grouped(document.results, lambda result: str(result.key["dtype"])).items()
        if batches[0] < (ridge := statistics.median(cell.roofline.ridge_batch or 0 for cell in cells)) <= batches[-1]
    ]
    top = Axis.decades("tokens/s", [y for line in lines for _, y in line.points])
    bottom = Axis("batch", batches[0], batches[-1], tuple(batches), "log")
    return Plot("Throughput by batch", bottom, top, lines, marks, rules, height=360).svg()


def _gaps(results: Sequence[Result]) -> str:
    """Return the distributions of the gaps as cumulative curves."""
    shown = _spread_over_dtypes(results)
    lines, marks = list[Series](), list[Mark]()
    for colour, result in enumerate(shown):
        samples = result.gap_samples
        count = len(samples)
        points = [(value, min(99.9, 100 * (number + 0.5) / count)) for number, value in enumerate(samples)]
        lines.append(Series(_label(result), points, colour))
        for item in result.gaps.percentiles:
            if item.percent in _PERCENTS:
                marks.append(Mark(item.value, item.percent, "", colour, item.low, item.high))
    values = [x for line in lines for x, _ in line.points] + [mark.high for mark in marks if mark.high is not None]
    x = Axis.over("ms between two tokens", values)
    y = Axis("per cent of the gaps", 0, 99.9, (0, 50, 90, 99, 99.9), "nines")
    return Plot("Gaps between tokens", x, y, lines, marks, height=340).svg()


def _percentiles(results: Sequence[Result]) -> str:
    rows = [
        (
            _label(result),
            str(result.gaps.count),
            *(f"{interval(result.gaps, wanted)}" for wanted in (50, 90, 95, 99)),
            f"{result.gaps.maximum:.2f}",
        )
        for result in results
    ]
    return table(("gaps, ms", "count", "p50", "p90", "p95", "p99", "longest"), rows)


def _clocks(samples: Sequence[Mapping[str, Any]]) -> str:
    """Return a plot of the clocks, the power and the temperature of each GPU over time; empty without samples."""
    plots = []
    for label, key in (("SM clock, MHz", "sm_mhz"), ("power, W", "watts"), ("temperature, °C", "celsius")):
        groups: dict[str, list[tuple[float, float]]] = {}
        for sample in samples:
            if sample[key] is not None:
                groups.setdefault(str(sample["uuid"]), []).append((float(sample["at_s"]), float(sample[key])))
        if not groups:
            continue
        lines = [Series(uuid, points, colour) for colour, (uuid, points) in enumerate(groups.items())]
        x = Axis.over("seconds", [x for line in lines for x, _ in line.points])
        y = Axis.over(label, [y for line in lines for _, y in line.points])
        plots.append(Plot(label, x, y, lines, rules=_throttled(samples), height=210).svg())
    return "".join(plots)


def _throttled(samples: Sequence[Mapping[str, Any]]) -> list[Rule]:
    from paddock.bench.measurement.watch import EVERY, SLOWED

    return [
        Rule(max(0.0, float(sample["at_s"]) - EVERY), ", ".join(reasons), float(sample["at_s"]))
        for sample in samples
        if (reasons := [reason for reason in sample["throttle"] if reason in SLOWED])
    ]


def _table(results: Sequence[Result]) -> str:
    cell = ("dtype", "batch", "prompt")
    speed = ("tokens/s", "TTFT ms", "TPOT ms", "prefill tokens/s", "memory GB", "of roof", "of data sheet")
    headings = (*cell, *speed, "J/token", "above idle")
    rows = [
        (
            name(result),
            str(result.key["batch"]),
            str(result.key["prompt"]),
            f"{result.tokens_per_s:.1f}",
            f"{result.ttft.median:.1f}",
            f"{result.tpot.median:.2f}",
            f"{result.prefill_tokens_per_s:.0f}",
            f"{result.memory_bytes / 1e9:.2f}",
            percent(result.roofline.of_measured),
            percent(result.roofline.of_datasheet),
            "unknown" if result.energy is None else f"{result.energy.joules_per_token:.2f}",
            "unknown" if result.energy is None else joules(result.energy.net_joules_per_token),
        )
        for result in results
    ]
    return table(headings, rows)


def _costs(best: Result) -> str:
    if not best.cost:
        return "<p>The catalogue has no price for this machine.</p>"
    rows = [
        (
            cost.instance,
            f"${cost.usd_per_million:.2f}",
            f"{cost.tokens_per_s:.0f}" + (f" of {cost.copies} copies" if cost.copies > 1 else ""),
            f"${cost.usd_per_hour:g}",
            "measured here" if cost.measured else "assumed",
            f"{cost.source}, {cost.as_of or 'undated'}",
        )
        for cost in best.cost
    ]
    return table(("instance", "a million tokens", "tokens/s with prompts", "an hour", "speed", "price"), rows)


def _doubts(document: BenchDocument) -> list[str]:
    doubts = [f"{_label(result)}: {doubt}" for result in document.results for doubt in result.doubts]
    return doubts + [f"{problem.dtype}: {problem.message}" for problem in document.problems]


def _notes(results: Sequence[Result]) -> list[str]:
    """Return the kernel of each format, and the notes on its results, each once."""
    notes = [f"{result.key['dtype']}: {text}" for result in results for text in (result.kernel, *result.notes)]
    return list(dict.fromkeys(notes))


def _spread_over_dtypes(results: Sequence[Result]) -> list[Result]:
    """Return a few results of all dtypes and modes: the first of each, then the second of each."""
    groups = list(_grouped(results, name).values())
    turns = (group[turn] for turn in range(max(map(len, groups))) for group in groups if turn < len(group))
    return list(turns)[:_LINES]


def _grouped(results: Sequence[Result], key: Callable[[Result], str]) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def _batch(result: Result) -> int:
    return int(result.key["batch"] or 1)
