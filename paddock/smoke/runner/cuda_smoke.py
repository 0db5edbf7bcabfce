"""The compiled `cuda-smoke` in place of torch: memory and a kernel, on machines that have no torch."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddock.smoke.verdict.model import Device, Measurement, StageResult, judge

SECONDS = 50.0
_STAGES = {"vector_add": "compute", "memory": "memory"}
"""Stage by name of its test."""


_IN_IMAGES = "/opt/paddock/cuda"


def program() -> Path | None:
    """Return where it is installed: on PATH, or where runner images and machine images have it."""
    path = shutil.which("cuda-smoke") or shutil.which("cuda-smoke", path=_IN_IMAGES)
    return Path(path) if path else None


def run(path: Path, device: Device, environ: Mapping[str, str]) -> tuple[StageResult, ...]:
    """Test the one GPU that the environment shows."""
    command = [str(path), "--all", "--timeout", f"{SECONDS:g}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=dict(environ), timeout=SECONDS + 10, check=False
        )
    except subprocess.TimeoutExpired:
        return (_failed(device, "memory", f"cuda-smoke gave no result within {SECONDS + 10:g} s"),)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return (_failed(device, "memory", f"cuda-smoke ended with {done.returncode} and printed no JSON"),)
    return results(document, device)


def results(document: Mapping[str, Any], device: Device) -> tuple[StageResult, ...]:
    """Return the results of the report that cuda-smoke printed (docs/cuda-builder.md)."""
    if error := document.get("error"):
        return (_failed(device, "memory", f"cuda-smoke: {error['kind']}: {error.get('message', '')}".rstrip(": ")),)
    report = document["devices"][0]
    if error := report.get("error"):
        return (_failed(device, "memory", f"cuda-smoke: {error['kind']}: {error.get('message', '')}".rstrip(": ")),)
    return tuple(_result(device, test) for test in report["tests"])


def _result(device: Device, test: Mapping[str, Any]) -> StageResult:
    stage = _STAGES.get(test["name"], test["name"])
    if not test["ok"]:
        return _failed(device, stage, f"{test.get('wrong', 'some')} values are wrong ({test['name']})")
    values = []
    if "bandwidth_gb_s" in test:
        # What the test saw while it compared, not a benchmark: no limit is put on it.
        values.append(Measurement(f"bandwidth of {test['name']}", test["bandwidth_gb_s"], "GB/s"))
    evidence = "" if values else "every value is right"
    return judge(stage, 2, device, values, evidence=evidence, seconds=test.get("seconds", 0.0))


def _failed(device: Device, stage: str, evidence: str) -> StageResult:
    fix = "reset the GPU, and run the test again; when it fails again, replace the node"
    return StageResult(stage, 2, "fail", evidence, device.uuid, device.index, "reset", fix)
