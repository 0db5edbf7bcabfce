"""A result document in lines of text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddock.bench.measurement.statistics import Summary
from paddock.bench.report.model import BenchDocument, Result

_HEADINGS = (
    "dtype", "batch", "prompt", "decode", "median gap", "TTFT", "prefill", "memory", "reads", "of roof", "$/M tokens",
)  # fmt: skip
_DISAGREES = 0.05
"""Part by which the energy counter and the sum of power readings may differ before both are reported."""

MODE_HEADINGS = (
    "mode and dtype", "batch", "throughput", "of the fastest", "request p50", "request p99", "memory", "of the most",
    "busy", "paused",
)  # fmt: skip
"""Of the table of resource modes; `busy` is the part of the time in which a request ran."""


def lines(document: BenchDocument) -> Iterator[str]:
    """Yield the document for a terminal."""
    device, model = document.device, document.model
    yield f"{model['name']} ({sizes(model)}, weights {model['weights']}) on {device['name']}, by {document.engine}"
    for note in document.notes:
        yield f"note: {note}"
    if document.results:
        yield ""
        yield from _aligned([_HEADINGS, *(_row(result) for result in document.results)])
        yield ""
        if any(result.key.get("mode") for result in document.results):
            yield from _aligned([MODE_HEADINGS, *mode_rows(document.results)])
            yield ""
        yield from _explained(document)
    for problem in document.problems:
        mode = f" {problem.mode}" if problem.mode else ""
        yield f"{problem.dtype}{mode}: {problem.message}"
    if not document.complete:
        measured = "what was measured until then is above" if document.results else "nothing was measured until then"
        yield f"interrupted: {measured}"


def name(result: Result) -> str:
    """Return the dtype with the mode, where there is one."""
    mode = result.key.get("mode")
    return f"{result.key['dtype']} {mode}" if mode else str(result.key["dtype"])


def number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"


def percent(part: float | None) -> str:
    return "unknown" if part is None else f"{part:.0%}"


def sizes(model: Mapping[str, Any]) -> str:
    """Return a model's parameters, with those that a token uses where they are fewer."""
    count, active = model["parameters"], model.get("active_parameters", model["parameters"])
    return parameters(count) + (f" ({parameters(active)} active)" if active < count else "")


def parameters(count: int) -> str:
    """Return a model's size as models are named: `0.60 B`, and small ones in millions."""
    return f"{count / 1e9:.2f} B" if count >= 1e8 else f"{count / 1e6:.1f} M"


def tail(summary: Summary) -> str:
    """Return the 99th percentile of milliseconds, or the words for too few samples."""
    found = summary.percentile(99)
    return f"{found.value:.1f} ms" if found else f"n {summary.count} too small"


def mode_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return the table of the modes: what each costs compared with the fastest, with its tail and its pauses."""
    best = max(map(throughput, results))
    most = max(result.memory_bytes for result in results)
    return [
        (
            name(result), str(result.key["batch"]), f"{throughput(result):.1f} tokens/s",
            percent(throughput(result) / best), f"{result.request_ms.median:.0f} ms", tail(result.request_ms),
            f"{result.memory_bytes / 1e9:.2f} GB", percent(result.memory_bytes / most), percent(result.device_share),
            f"{result.throttled_s:.1f} s",
        )
        for result in sorted(results, key=throughput, reverse=True)
    ]  # fmt: skip


def throughput(result: Result) -> float:
    """Return the tokens a second of whole requests, pauses of the mode included."""
    return statistics.median(result.metrics["request_tokens_per_s"].runs)


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(result: Result) -> tuple[str, ...]:
    cost = result.cost[0] if result.cost else None
    return (
        name(result), str(result.key["batch"]), str(result.key["prompt"]), f"{result.tokens_per_s:.1f} tokens/s",
        f"{result.gaps.median:.1f} ms", f"{result.ttft.median:.0f} ms", f"{result.prefill_tokens_per_s:.0f} tokens/s",
        f"{result.memory_bytes / 1e9:.2f} GB",
        f"{result.roofline.achieved_gbs:.1f} of {number(result.roofline.measured_gbs)} GB/s",
        percent(result.roofline.of_measured),
        f"{cost.usd_per_million:.2f}" + ("" if cost.measured else " *") if cost else "unknown",
    )  # fmt: skip


def _explained(document: BenchDocument) -> Iterator[str]:
    first = document.results[0]
    roof = first.roofline
    bounds = sorted({result.roofline.bound for result in document.results if result.roofline.bound}, reverse=True)
    bound = f"; decoding is bound by {' or '.join(bounds)}" if bounds else ""
    sheet = "unknown" if roof.datasheet_gbs is None else f"{roof.datasheet_gbs:g} GB/s"
    yield f"reads: what a step read a second, of the median that was measured with it (data sheet {sheet}){bound}"
    if any(result.roofline.bound is None for result in document.results):
        yield "of roof: of the reads alone; nothing here measures how fast these GEMMs could be"
    yield f"kernel: {'; '.join(dict.fromkeys(result.kernel for result in document.results))}"
    if clocks := [result.clocks for result in document.results if result.clocks is not None]:
        yield (
            f"clock: steps took {min(clocks):.3f} to {max(clocks):.3f} times as long by this clock as by"
            f" {document.engine}'s own"
        )
    yield from _energies(document)
    cost = first.cost[0] if first.cost else None
    if cost and not cost.measured:
        yield (
            f"* as if on {cost.instance} in {cost.region} (${cost.usd_per_hour:g} an hour, {cost.source},"
            f" {cost.as_of}): this machine has no price; name its type with --instance"
        )
    elif cost:
        yield f"cost on {cost.instance} in {cost.region}: ${cost.usd_per_hour:g} an hour, {cost.source}, {cost.as_of}"
    else:
        yield "cost: the catalogue has no price for this machine; name an instance type with --instance"
    for note in dict.fromkeys(note for result in document.results for note in result.notes):
        yield f"note: {note}"
    for result in document.results:
        for doubt in result.doubts:
            yield f"doubt about {name(result)}, batch {result.key['batch']}: {doubt}"
    beyond = [result for result in document.results if result.batch > (result.roofline.ridge_batch or 1e9)]
    for label, ridge in {name(result): result.roofline.ridge_batch for result in beyond}.items():
        yield f"{label}: above batch {ridge:.0f} arithmetic is the bound: fewer bits save no time there"
    for knee in document.knees:
        label = f"{knee.dtype} {knee.mode}" if knee.mode else knee.dtype
        yield f"knee of {label} at prompt {knee.prompt}: batch {knee.batch}"


def _energies(document: BenchDocument) -> Iterator[str]:
    if all(result.energy is None for result in document.results):
        yield "energy: unknown, this machine has no counter that may be read"
    for result in document.results:
        energy = result.energy
        if energy is None:
            continue
        net = energy.net_joules_per_token
        line = f"energy of {name(result)}, batch {result.key['batch']}: {energy.joules_per_token:.2f} J a token"
        line += f", {net:.2f} above idle" if net is not None else ""
        sampled = energy.sampled_joules
        if sampled is not None and abs(sampled / energy.joules - 1) > _DISAGREES:
            line += f"; the sum of power readings says {energy.joules_per_token * sampled / energy.joules:.2f}"
        yield f"{line} ({energy.source})"
