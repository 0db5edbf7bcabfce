"""A result document in lines of text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise

from paddock.bench.report.model import BenchDocument, Distribution, Result

_TAIL = 99
_HEADINGS = ("dtype", "batch", "prompt", "decode", "median gap", "TTFT", "memory", "of roof", "$/M tokens")


def lines(document: BenchDocument) -> Iterator[str]:
    """Yield the document for a terminal."""
    device, model = document.device, document.model
    ranks = f", tensor parallel over {device['ranks']}" if device["ranks"] > 1 else ""
    yield f"{model['name']} ({model['parameters'] / 1e9:.2f} B, weights {model['weights']}) on {device['name']}{ranks}"
    for note in document.notes:
        yield f"note: {note}"
    if document.results:
        yield ""
        yield from _aligned([_HEADINGS, *(_row(result) for result in document.results)])
        yield ""
        if any(result.key.get("mode") for result in document.results):
            yield from _aligned(list(_modes(document.results)))
            yield ""
        yield from _explained(document)
    for problem in document.problems:
        mode = f" {problem.mode}" if problem.mode else ""
        yield f"{problem.dtype}{mode}: {problem.message}"
    if not document.complete:
        yield "interrupted: what was measured until then is above"


def name(result: Result) -> str:
    """Return the dtype with the mode, where there is one."""
    mode = result.key.get("mode")
    return f"{result.key['dtype']} {mode}" if mode else str(result.key["dtype"])


def percent(part: float | None) -> str:
    return "unknown" if part is None else f"{part:.0%}"


def tail(distribution: Distribution) -> str:
    """Return the 99th percentile, or the words for too few samples."""
    value = next((item.value for item in distribution.percentiles if item.percent == _TAIL), None)
    return f"{value:.1f}" if value is not None else f"n {distribution.count} too small"


def _modes(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """Yield the table of the modes: what each costs beside the fastest, with its pauses."""
    best = max(results, key=_throughput)
    yield ("mode and dtype", "batch", "throughput", "of the fastest", "weights read", "of the most", "paused")
    most = max(result.roofline.weight_bytes for result in results)
    for result in sorted(results, key=_throughput, reverse=True):
        yield (
            name(result),
            str(result.key["batch"]),
            f"{_throughput(result):.1f} tokens/s",
            percent(_throughput(result) / _throughput(best)),
            f"{result.roofline.weight_bytes / 1e9:.2f} GB",
            percent(result.roofline.weight_bytes / most),
            f"{result.throttled_s:.1f} s",
        )


def _throughput(result: Result) -> float:
    """Return the tokens a second of whole requests, pauses of the mode included."""
    return statistics.median(result.metrics["request_tokens_per_s"].runs)


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(result: Result) -> tuple[str, ...]:
    cost = result.cost[0] if result.cost else None
    return (
        name(result),
        str(result.key["batch"]),
        str(result.key["prompt"]),
        f"{result.tokens_per_s:.1f} tokens/s",
        f"{result.gaps.median:.1f} ms",
        f"{result.ttft.median:.0f} ms",
        f"{result.memory_bytes / 1e9:.2f} GB",
        percent(result.roofline.of_measured),
        f"{cost.usd_per_million:.2f}" + ("" if cost.measured else " *") if cost else "unknown",
    )


def _explained(document: BenchDocument) -> Iterator[str]:
    first = document.results[0]
    roof = first.roofline
    yield (
        f"roof: reads of {roof.measured_low_gbs:.1f} to {roof.measured_gbs:.1f} GB/s measured beside each result,"
        f" data sheet {_gbs(roof.datasheet_gbs)}; decoding is bound by {roof.bound}"
    )
    yield f"kernel: {'; '.join(dict.fromkeys(result.kernel for result in document.results))}"
    for result in document.results:
        if result.quality:
            quality = result.quality
            yield (
                f"quality of {name(result)}: logit error {quality.logit_error:.1%} of their spread, the same best token"
                f" at {quality.agreement:.0%} of positions"
                + (" (random weights say little of that)" if "random" in str(document.model["weights"]) else "")
            )
    if all(result.energy is None for result in document.results):
        yield "energy: unknown, this machine has no counter that may be read"
    else:
        for result in document.results:
            if result.energy:
                joules = result.energy.joules_per_token
                yield f"energy of {name(result)}: {joules:.2f} J a token ({result.energy.source})"
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
    ridge = roof.ridge_batch
    batches = [int(result.key["batch"] or 1) for result in document.results]
    if ridge and any(batch > ridge for batch in batches):
        yield f"above batch {ridge:.0f} arithmetic is the bound: fewer bits save no time there"
    yield from _knee(document)


def _knee(document: BenchDocument) -> Iterator[str]:
    """Yield the batch of each dtype above which more rows add less than 5 % of throughput."""
    series: dict[tuple[str, str], list[Result]] = {}
    for result in document.results:
        series.setdefault((name(result), str(result.key["prompt"])), []).append(result)
    for (label, prompt), results in series.items():
        ordered = sorted(results, key=lambda result: int(result.key["batch"] or 1))
        for smaller, larger in pairwise(ordered):
            if larger.tokens_per_s < smaller.tokens_per_s * 1.05:
                yield f"knee of {label} at prompt {prompt}: batch {smaller.key['batch']}"
                break


def _gbs(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g} GB/s"
