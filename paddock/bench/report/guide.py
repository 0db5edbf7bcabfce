"""The tuning guide of resource modes: what one machine measured, as Markdown for the documentation."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from paddock.bench.report.model import BenchDocument, Result
from paddock.bench.report.text import MODE_HEADINGS, mode_rows, throughput

_STRICT, _FREE = "conservative", "aggressive"
_FEW, _WHOLE = "int4", ("fp32", "bf16", "fp16", "int8")
_COMMAND = "./inv bench --mode conservative,default,aggressive --runs 5"
UNMEASURED = (
    f"No result is kept here yet. On an idle machine `{_COMMAND} --json benchmarks/results/modes.json` makes one,"
    " and `./inv docs.generate` writes what it says into this page.\n"
)


def tuning(document: BenchDocument) -> str:
    """Return the table of the modes and what follows from it."""
    model, command = document.model, document.command
    head = f"| {' | '.join(MODE_HEADINGS)} |\n|{'---|' * len(MODE_HEADINGS)}\n"
    rows = "".join(f"| {' | '.join(row)} |\n" for row in mode_rows(document.results))
    environment = document.environment
    load = environment.get("load_1m")
    busy = "" if load is None else f", whose load was {load:g} when it began"
    return (
        f"Measured on {document.taken_at[:10]}: {model['name']} ({model['parameters'] / 1e6:.0f} million parameters,"
        f" {model['weights']}), prompt {', '.join(map(str, command['prompts']))}, {command['new']} new tokens,"
        f" {command['runs']} runs, on {document.device['name']} with {environment['vcpus']} CPUs{busy}"
        f" (`benchmarks/results/modes.json`, `{_COMMAND}`).\n\n"
        f"{head}{rows}\n{''.join(f'- {line}{chr(10)}' for line in _advice(document.results))}"
    )


def _advice(results: Sequence[Result]) -> Iterator[str]:
    """Yield what the measurements say about each setting, in the order in which the settings are worth trying."""
    one_row = [result for result in results if result.key["batch"] == 1]
    measured = {result.key["dtype"] for result in results}
    many = next((dtype for dtype in _WHOLE if dtype in measured), _WHOLE[-1])
    if (speed := _ratio(one_row, "dtype", _FEW, many)) is not None:
        memory = _ratio(one_row, "dtype", _FEW, many, memory=True)
        yield (
            f"**Quantise first.** With one row {_FEW} serves {speed:.2f} times what {many} does in the same mode,"
            f" in {memory:.2f} of the memory. Whether its quality is enough, no speed says."
        )
    if (speed := _ratio(one_row, "mode", _STRICT, _FREE)) is not None:
        yield (
            f"**Then choose the mode.** With one row {_STRICT} serves {speed:.0%} of what {_FREE} does with the same"
            " weights; the rest of the time is the pauses', and a desktop's."
        )
    for mode in (_STRICT, _FREE):
        own = [result for result in results if result.key["mode"] == mode]
        batches = [result.batch for result in own]
        small, large = min(batches, default=1), max(batches, default=1)
        if large > small and (speed := _ratio(own, "batch", large, small)) is not None:
            tail = _ratio(own, "batch", large, small, latency=True)
            yield (
                f"**Batch last.** In {mode} a batch of {large} serves {speed:.2f} times what {small} does, and a"
                f" request takes {tail:.2f} times as long."
            )
    strict, free = _cell(one_row, _STRICT, _FEW), _cell(one_row, _FREE, many)
    if strict and free:
        yield (
            f"**Both together.** {_FEW} in {_STRICT} has {throughput(strict) / throughput(free):.0%} of the throughput"
            f" of {many} in {_FREE}, at {strict.memory_bytes / free.memory_bytes:.0%} of its memory."
        )


def _ratio(
    results: Sequence[Result], name: str, first: object, second: object, *, memory: bool = False, latency: bool = False
) -> float | None:
    """Return the median of one setting's numbers over another's, with all other settings the same; None without any."""

    def value(result: Result) -> float:
        if latency:
            return result.request_ms.median
        return float(result.memory_bytes) if memory else throughput(result)

    def others(result: Result) -> tuple[object, ...]:
        return tuple(result.key[key] for key in ("mode", "dtype", "batch", "prompt") if key != name)

    of_second = {others(result): value(result) for result in results if result.key[name] == second}
    ratios = [
        value(result) / of_second[others(result)]
        for result in results
        if result.key[name] == first and others(result) in of_second
    ]
    return statistics.median(ratios) if ratios else None


def _cell(results: Sequence[Result], mode: str, dtype: str) -> Result | None:
    return next((item for item in results if (item.key["mode"], item.key["dtype"]) == (mode, dtype)), None)
