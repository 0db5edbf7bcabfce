"""Simulated machines under the smoke test, with a stand-in for torch on their GPUs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from paddock.smoke.runner import run as smoke
from paddock.smoke.runner import worker
from paddock.smoke.runner.run import Options
from paddock.smoke.verdict.model import MachineVerdict, StageResult
from tests.smoke.worker_stand_in import OF_PROCESSES, asked, document
from tests.support.nvml import Driver, installed

STAND_IN = (sys.executable, "-IS", str(Path(__file__).with_name("worker_stand_in.py")))
GPU_0, GPU_1 = "GPU-00000000", "GPU-00000001"


class WorkersHere(worker.Workers):
    """Workers that answer in this process, at once: what a process would print."""

    def run(self, name: str, parameters: Any, environ: Mapping[str, str], seconds: float, *, alone: bool) -> Any:
        uuids, fault = asked(environ)
        hangs = fault == "hangs" and name == "gemm"
        said = {"error": "no result", "hangs": True} if hangs else document(name, fault, len(uuids))
        return worker.Answer(said, time.monotonic())


def verdict(
    driver: Driver,
    *,
    tier: Any = 1,
    faults: dict[str, str] | None = None,
    instance: str | None = None,
    trace: Path | None = None,
    loading: float = 60.0,
    processes: bool = False,
    notify: Callable[[StageResult], None] = lambda _: None,
    **options: Any,
) -> MachineVerdict:
    """Test a machine, with workers in this process; where their being processes matters, with `processes`."""
    faults = faults or {}
    environ = {**os.environ, "FAULTS": json.dumps(faults), "TRACE": str(trace or "")}
    here = not (processes or trace or OF_PROCESSES & {*faults.values()})
    with installed(driver), patch.object(worker, "Workers", WorkersHere) if here else nullcontext():
        return smoke.run(
            Options(tier=tier, **options),
            notify,
            program=STAND_IN,
            environ=environ,
            instance_type=lambda: instance,
            loading=loading,
        )


def results(report: MachineVerdict, status: str) -> list[tuple[str, int | None, str]]:
    return [(stage.stage, stage.index, stage.action) for stage in report.stages if stage.status == status]
