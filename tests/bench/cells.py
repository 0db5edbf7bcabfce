"""Results of made-up samples: what a worker would have said of a cell, and the document of several."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from paddock.bench.engines.door import BenchJob
from paddock.bench.report.model import BenchDocument, Result
from paddock.bench.runner import results
from paddock.models.shapes import Shape, shape

ENVIRONMENT: dict[str, Any] = {
    "instance": None, "machine": "m", "gpus": [], "driver": None, "image": None, "ami": None, "vcpus": 4,
    "processor": "a processor",
}  # fmt: skip


def job(model: Shape, dtype: str, batch: int = 1, length: int = 64, **changes: Any) -> BenchJob:
    """Return the job of one batch and length on the processor, of which 2 tokens are new."""
    return BenchJob(model, dtype, "cpu", (batch,), (length - 2,), 2, 1, 0, "torch", **changes)


def cell(batch: int = 1, prompt: int = 16, step: float = 0.01, runs: int = 3, **changes: Any) -> dict[str, Any]:
    steps = [[step] * 7] * runs
    return {
        "batch": batch, "prompt": prompt, "prefill": [0.1] * runs, "runs": steps, "wall": [7 * step] * runs,
        "paused": [0.0] * runs, "engine": [7 * step] * runs, "calls": [step / 10] * runs, "compile_s": 0.0,
        "step": "eager", "eager_because": "", "seconds": 4.0, "joules": None, "sampled_joules": None,
        "requests": runs + 1, "bandwidth": [8.0, 10.0, 10.0, 12.0], "memory": 10**9, "reported": [], "inside": 0.0,
        "together": 0, "others": None, "in_turn": False,
        "sessions": [runs], "sessions_at": [0.0], **changes,
    }  # fmt: skip


def result(
    dtype: str = "bf16",
    *,
    mode: str = "",
    model: Shape | None = None,
    gpu: Any = None,
    gpus: int = 0,
    idle_watts: float | None = None,
    environment: dict[str, Any] | None = None,
    tflops: float | None = 1.0,
    weight_bytes: int = 1_000_000,
    **changes: Any,
) -> Result:
    """Return the result of a cell of tiny; `changes` are those of the cell."""
    model = model or shape("tiny")
    loaded = {"weight_bytes": weight_bytes, "cache_element": 2, "load_s": 1.0, "quantise_s": 0.0, "kernel": "none",
              "computed": dtype, "notes": [], "tflops": tflops}  # fmt: skip
    job = BenchJob(model, dtype, "cuda" if gpus else "cpu", (1,), (16,), 8, 3, 1, "torch", mode=mode)
    context = results.Context({**ENVIRONMENT, **(environment or {})}, gpu, gpus, "us-east-1", idle_watts)
    return results.result(job, loaded, cell(**changes), context)


def document(*measured: Result, **changes: Any) -> BenchDocument:
    model = shape("tiny")
    values: dict[str, Any] = {
        "taken_at": "2026-11-25T12:00:00+00:00", "complete": True, "trusted": True, "command": {},
        "model": {**asdict(model), "parameters": model.model.parameters, "weights": "random, seed 0"},
        "device": {"kind": "cpu", "name": "a processor", "count": 1, "catalogue": None, "uuids": []},
        "engine": "torch", "environment": ENVIRONMENT, "results": measured, "knees": results.knees(measured), **changes,
    }  # fmt: skip
    return BenchDocument(**values)
