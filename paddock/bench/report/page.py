"""The page of a benchmark: one HTML file with plots."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from paddock.bench.report.components import as_text, distributions, percentiles, top
from paddock.bench.report.model import BenchDocument, Result
from paddock.bench.report.text import lines, name, number, percent, sizes
from paddock.html import components
from paddock.html.charts import Axis, Mark, Plot, Rule, Series
from paddock.html.components import bar, folded, section, table
from paddock.html.markup import Html, join, tag

_LINES = 6
"""Distributions that one plot shows: more lie on top of each other."""


def page(document: BenchDocument) -> str:
    """Return the document as HTML."""
    model, device, results = document.model, document.device, document.results
    title = f"{model['name']} on {device['name']}"
    where = [
        f"{sizes(model)} parameters, weights {model['weights']}",
        f"engine {document.engine}",
        document.taken_at,
    ]
    best = max(results, key=lambda result: result.tokens_per_s, default=None)
    environment = tag("pre", json.dumps(document.environment, indent=2))
    return components.page(
        title,
        top("Benchmark", title, where, _because(document), _figures(best) if best else ()),
        tag(
            "main",
            _measured(document, best) if best else None,
            as_text(lines(document)),
            section("environment", "Environment", folded("What makes it repeatable", environment)),
        ),
    )


def _measured(document: BenchDocument, best: Result) -> Iterator[Html]:
    results = document.results
    unknown = any(result.roofline.bound is None for result in results)
    note = "A whole bar is what the bandwidth and the GEMMs measured with each result allow."
    if unknown:
        note = "A whole bar is what the bandwidth measured with each result allows; GEMMs have no roof here."
    yield section("decode", "Decode speed against the roof", _speeds(results), note=note)
    if curve := _throughput(document):
        note = "Dashed: the roof. Ring: the knee, above which more rows add less than 5 %."
        ridge = "" if unknown else " Dotted: the ridge, above which arithmetic bounds a step and not memory."
        yield section("throughput", "Throughput by batch", curve, note=note + ridge)
    note = "Part of the gaps that are at most this long. Rings: percentiles, with their 95 % intervals in the shade."
    yield section("gaps", "Gaps between tokens", _gaps(results), note=note)
    if clocks := _clocks(document.clocks):
        note = "Shaded: seconds in which the clocks were held low."
        yield section("clocks", "Clocks, power and temperature", clocks, note=note)
    note = "At full use; at half use a token costs twice as much. Assumed speeds follow memory bandwidth."
    yield section("cost", "What a million tokens cost", _costs(best), note=note)


def _because(document: BenchDocument) -> str:
    if not document.complete:
        return "Interrupted: incomplete."
    count = sum(len(result.doubts) for result in document.results) + len(document.problems)
    return "" if document.trusted else f"{count} reason{'s' * (count != 1)} for doubt, listed below."


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


def _speeds(results: Sequence[Result]) -> Html:
    columns = [("Configuration", "wide"), ("Of the roof", "bar")]
    rows = []
    for result in results:
        share = result.roofline.of_measured
        speed = f"{percent(share)}: {result.tokens_per_s:.1f} of {_roof(result):.0f} tokens/s"
        rows.append(
            (_label(result), [bar(share or 0.0, f"{percent(share)} of the roof", width=360), tag("span", speed)])
        )
    return table("Decode speed against the roof", columns, rows, hide_caption=True)


def _throughput(document: BenchDocument) -> Html | None:
    """Return throughput over the batch, with roof, knee and ridge; None without several batches."""
    groups = _grouped(document.results, lambda result: f"{name(result)}, prompt {result.key['prompt']}")
    curves = {
        label: sorted(cells, key=lambda result: result.batch) for label, cells in groups.items() if len(cells) > 1
    }
    if not curves:
        return None
    batches = sorted({result.batch for cells in curves.values() for result in cells})
    lines, marks = list[Series](), list[Mark]()
    for colour, (label, cells) in enumerate(curves.items()):
        lines.append(Series(label, [(result.batch, result.tokens_per_s) for result in cells], colour))
        lines.append(Series(f"{label}: roof", [(result.batch, _roof(result)) for result in cells], colour, True))
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


def _gaps(results: Sequence[Result]) -> Html:
    """Return the distributions of the gaps of a few results, and their percentiles of all."""
    curves = [(_label(result), result.gap_samples, result.gaps) for result in _spread_over_dtypes(results)]
    x = Axis.over("ms between two tokens", [value for _, samples, _ in curves for value in samples])
    table = percentiles("gaps, ms", [(_label(item), item.gaps) for item in results])
    return join(distributions("Gaps", x, curves), table)


def _clocks(samples: Sequence[Mapping[str, Any]]) -> Html:
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
    return join(*plots)


def _throttled(samples: Sequence[Mapping[str, Any]]) -> list[Rule]:
    from paddock.bench.measurement.watch import EVERY, SLOWED

    return [
        Rule(max(0.0, float(sample["at_s"]) - EVERY), ", ".join(reasons), float(sample["at_s"]))
        for sample in samples
        if (reasons := [reason for reason in sample["throttle"] if reason in SLOWED])
    ]


def _costs(best: Result) -> Html:
    if not best.cost:
        return tag("p", "The catalogue has no price for this machine.")
    columns = [
        ("Instance", ""), ("A million tokens", "n"), ("Tokens/s with prompts", "n"), ("An hour", "n"), ("Speed", ""),
        ("Price", "wide"),
    ]  # fmt: skip
    rows = [
        (
            cost.instance, f"${cost.usd_per_million:.2f}",
            f"{cost.tokens_per_s:.0f}" + (f" of {cost.copies} copies" if cost.copies > 1 else ""),
            f"${cost.usd_per_hour:g}", "measured here" if cost.measured else "assumed",
            f"{cost.source}, {cost.as_of or 'undated'}",
        )
        for cost in best.cost
    ]  # fmt: skip
    return table("What a million tokens cost", columns, rows, hide_caption=True)


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
