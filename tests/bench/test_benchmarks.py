"""What stands beside the benchmarks' measurements: goals on a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paddock.catalog.gpus import gpus
from tests.bench.cells import document, result


@pytest.fixture
def benchmark(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports one of the programs in benchmarks/."""
    monkeypatch.syspath_prepend(str(root / "benchmarks"))

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, root / "benchmarks" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def test_results_on_a_gpu_are_held_against_their_goals(benchmark: Any) -> None:
    program = benchmark("inference_gpu")
    gpu: dict[str, Any] = {"gpu": gpus()["h100"], "gpus": 1, "bandwidth": [3000.0], "tflops": 700.0}
    measured = [
        result("bf16", prompt=program.SHORT, step=0.4, weight_bytes=10**12, **gpu),
        result("bf16", prompt=program.LONG, step=0.4, weight_bytes=10**12, **gpu),
        result("int8", prompt=program.SHORT, step=0.6, weight_bytes=5 * 10**11, **gpu),
    ]
    rows = {row["name"]: row for row in program.rows(document(*measured))}
    decode = rows["decode of measured bandwidth: bf16, batch 1, prompt 32"]
    assert (decode["value"], decode["goal"], decode["met"]) == (pytest.approx(0.833, abs=1e-3), ">= 0.8", True)
    assert decode["gpt_fast_of_measured"] == 0.83
    int8 = rows["decode of measured bandwidth: int8, batch 1, prompt 32"]
    assert (int8["value"], int8["met"]) == (pytest.approx(0.278, abs=1e-3), False)
    assert rows["decode speed over bf16's: int8, batch 1, prompt 32"]["met"] is False
    assert rows["decode of measured bandwidth: bf16, batch 1, prompt 2048"]["goal"] is None
    assert rows["prefill of the data sheet's peak: bf16, batch 1, prompt 2048"]["goal"] == ">= 0.55"
    assert rows["harness overhead: bf16, batch 1, prompt 32"]["met"] is True
