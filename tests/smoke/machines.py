"""Simulated machines under the smoke test, with a stand-in for torch on their GPUs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from paddock.smoke.runner import run as smoke
from paddock.smoke.runner.run import Options
from paddock.smoke.verdict.model import Report
from tests.support.nvml import Driver, installed

STAND_IN = (sys.executable, "-IS", str(Path(__file__).with_name("worker_stand_in.py")))
GPU_0, GPU_1 = "GPU-00000000", "GPU-00000001"


def verdict(
    driver: Driver,
    *,
    tier: Any = 1,
    faults: dict[str, str] | None = None,
    instance: str | None = None,
    trace: Path | None = None,
    loading: float = 60.0,
    **options: Any,
) -> Report:
    environ = {**os.environ, "FAULTS": json.dumps(faults or {}), "TRACE": str(trace or "")}
    with installed(driver):
        return smoke.run(
            Options(tier=tier, **options),
            program=STAND_IN,
            environ=environ,
            instance_type=lambda: instance,
            loading=loading,
        )


def results(report: Report, status: str) -> list[tuple[str, int | None, str]]:
    return [(stage.stage, stage.index, stage.action) for stage in report.stages if stage.status == status]
