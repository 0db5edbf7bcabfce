#!/usr/bin/env python3
"""Decode and prefill of an 8B model in torch on one GPU against its limits, with gpt-fast's published fractions beside.

    .venv/bin/python benchmarks/inference_gpu.py [--runs N] [--model llama-3.1-8b] [--batch 1 4]

`paddock bench` measures, and this holds its document against the goals. Prints one JSON document. Needs the lock
`torch`, and a GPU of NVIDIA's or AMD's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from side_by_side import rounded

from paddock.bench.report.model import BenchDocument, Result
from paddock.bench.runner.plan import Options
from paddock.bench.runner.run import default_engine, run
from paddock.gpu.inventory import inventory
from paddock.models.shapes import shape

SHORT, LONG = 32, 2048
"""Tokens of a prompt: for decoding, which reads the weights, and for prefill, which computes."""
OVERHEAD = 0.01
SOURCE = "gpt-fast README, 2024-09-15: A100-80GB at 330 W, batch 1, 5-token prompt; its own peak was some 1700 GB/s"


GOALS: Mapping[str, float] = {"bf16": 0.80, "fp8": 0.65, "int8": 0.50, "int4": 0.45}
"""Part of the measured bandwidth to reach: what good kernels of others reach on an H100 or H200."""
GPT_FAST: Mapping[str, float] = {"bf16": 0.83, "int8": 0.61, "int4": 0.51}
"""What gpt-fast publishes of its own; for int4 of Llama-2-7B."""
PREFILL = 0.55
"""Part of the data sheet's peak in bf16."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each, after one that is not")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="rows that are decoded at once")
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.model, arguments.runs, tuple(arguments.batch)), indent=1))


def measure(model: str, runs: int, batches: tuple[int, ...]) -> dict[str, Any]:
    """Return the document of results, each with its goal. Raises SystemExit without a GPU.

    Decoding is measured in every format, prefill in bf16: its goal counts the arithmetic of that format alone.
    """
    if default_engine(inventory(), "") != "torch":
        raise SystemExit("this needs a GPU of NVIDIA's or AMD's")
    decode = Options(shape(model), "", "torch", tuple(GOALS), batches, (SHORT,), 128, runs, 1, "us-east-1", None)
    documents = [run(decode, notify=print_to_stderr)]
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
    row = _row(result, "decode of measured bandwidth", result.roofline.of_measured, goal if short else None)
    yield {
        **row,
        "tokens_per_s": rounded(result.tokens_per_s),
        "gbs": [rounded(result.roofline.achieved_gbs), rounded(result.roofline.measured_gbs or 0)],
        "gpt_fast_of_measured": GPT_FAST.get(str(result.key["dtype"])) if short else None,
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


if __name__ == "__main__":
    main()
