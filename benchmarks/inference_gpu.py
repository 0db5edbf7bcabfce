"""Decode and prefill of an 8B model on one GPU against its own limits, with gpt-fast's published fractions beside them.

`benchmarks/inference.py --gpu` runs it: `paddock bench` measures, and this holds its document against the goals.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from side_by_side import rounded

from paddock.bench.report.model import BenchDocument, Result
from paddock.bench.runner.plan import Options
from paddock.bench.runner.run import run
from paddock.models.shapes import shape

SHORT, LONG = 32, 2048
"""Tokens of a prompt: for decoding, which reads the weights, and for prefill, which computes."""
OVERHEAD = 0.01
SOURCE = "gpt-fast README, 2024-09-15: A100-80GB at 330 W, batch 1, 5-token prompt; its own peak was some 1700 GB/s"


@dataclass(frozen=True, slots=True)
class Goal:
    """Part of the measured bandwidth to reach, and what gpt-fast publishes of its own; for int4 of Llama-2-7B."""

    decode: float
    gpt_fast: float | None


GOALS: Mapping[str, Goal] = {"bf16": Goal(0.80, 0.83), "int8": Goal(0.65, 0.61), "int4": Goal(0.65, 0.51)}
PREFILL = 0.55
"""Part of the data sheet's peak in bf16."""


def measure(model: str, runs: int, batches: tuple[int, ...]) -> dict[str, Any]:
    """Return the document of results, each with its goal. Raises SystemExit without a GPU.

    Decoding is measured in every format, prefill in bf16: its goal counts the arithmetic of that format alone.
    """
    decode = Options(
        shape(model), "", "torch", tuple(GOALS), batches, (SHORT,), 128, runs, 1, 1, "us-east-1", None
    )  # fmt: skip
    documents = [run(decode, notify=print_to_stderr)]
    if documents[0].device["kind"] != "cuda":
        raise SystemExit("this needs a GPU of NVIDIA's or AMD's: without --gpu the processor is measured")
    if documents[0].complete:
        prefill = replace(decode, dtypes=("bf16",), batches=(1,), prompts=(LONG,), new=32)
        documents.append(run(prefill, notify=print_to_stderr))
    return {
        "date": documents[0].taken_at,
        "device": documents[0].device,
        "environment": documents[0].environment,
        "complete": all(document.complete for document in documents),
        "problems": [problem.message for document in documents for problem in document.problems],
        "gpt_fast": SOURCE,
        "results": [row for document in documents for row in rows(document)],
        "bench": [document.model_dump(mode="json") for document in documents],
    }


def rows(document: BenchDocument) -> Iterator[dict[str, Any]]:
    """Yield each measurement with its goal, and whether it is met; without a goal it is there to read."""
    for result in document.results:
        yield from _decode(result)
        if result.key["prompt"] == LONG and result.key["dtype"] == "bf16" and result.key["batch"] == 1:
            yield _row(result, "prefill of the data sheet's peak", result.roofline.prefill_of_datasheet, PREFILL)
    yield from _faster(document)


def _decode(result: Result) -> Iterator[dict[str, Any]]:
    goal = GOALS[str(result.key["dtype"])]
    short = result.key["prompt"] == SHORT and result.key["batch"] == 1
    row = _row(result, "decode of measured bandwidth", result.roofline.of_measured, goal.decode if short else None)
    yield {
        **row,
        "tokens_per_s": rounded(result.tokens_per_s),
        "gbs": [rounded(result.roofline.achieved_gbs), rounded(result.roofline.measured_gbs or 0)],
        "gpt_fast_of_measured": goal.gpt_fast if short else None,
        "step": result.step,
        "launching": rounded(result.launching),
        "doubts": list(result.doubts),
    }
    yield {**_row(result, "harness overhead", result.harness_overhead, None), "goal": f"<= {OVERHEAD:g}",
           "met": result.harness_overhead <= OVERHEAD}  # fmt: skip


def _faster(document: BenchDocument) -> Iterator[dict[str, Any]]:
    """Yield the speed of the quantised weights over that of bf16, of the same batch and prompt."""
    plain = {_place(result): result for result in document.results if result.key["dtype"] == "bf16"}
    for result in document.results:
        if result.key["dtype"] != "bf16" and (other := plain.get(_place(result))):
            goal = 1.0 if result.key["batch"] == 1 else None
            yield _row(result, "decode speed over bf16's", result.tokens_per_s / other.tokens_per_s, goal)


def _row(result: Result, name: str, value: float | None, goal: float | None) -> dict[str, Any]:
    cell = f"{result.key['dtype']}, batch {result.key['batch']}, prompt {result.key['prompt']}"
    met = None if goal is None or value is None else value >= goal
    return {
        "name": f"{name}: {cell}",
        "value": None if value is None else rounded(value),
        "goal": None if goal is None else f">= {goal:g}",
        "met": met,
    }


def _place(result: Result) -> tuple[object, object]:
    return result.key["batch"], result.key["prompt"]


def print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr)
