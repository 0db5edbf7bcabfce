"""The compiled `cuda-smoke` in place of torch: memory and a kernel, on machines that have no torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.children import Children, Stopped
from paddock.smoke.verdict.model import Measurement, SmokeDevice, StageResult, judge

SECONDS = 50.0
STAGES = ("memory", "compute")
"""Stages of the smoke test that it has tests for."""
_IN_IMAGES = "/opt/paddock/cuda"
_FAILURES = {"device_error", "timeout", "crash", "system_not_ready", "driver_error"}
"""Kinds of error after which a GPU, or all of CUDA, is not fit for work; after others it was not tested."""
_MEMORY_FULL = "cudaErrorMemoryAllocation"
_RESET = "reset the GPU, and run the test again; when it fails again, replace the node"


def program() -> Path | None:
    """Return where it is installed: on PATH, or where runner images and machine images have it."""
    path = shutil.which("cuda-smoke") or shutil.which("cuda-smoke", path=_IN_IMAGES)
    return Path(path) if path else None


def run(path: Path, device: SmokeDevice, environ: Mapping[str, str], children: Children) -> tuple[StageResult, ...]:
    """Test the one GPU that the environment shows. An interrupted test has no result."""
    command = [str(path), "--all", "--timeout", f"{SECONDS:g}"]
    try:
        with children.started(command, environ) as child:
            output = "".join(child.lines(SECONDS + 10))
            code = child.code()
            words = child.last_words()
    except Stopped:
        return ()
    except TimeoutError:
        return _all_failed(device, f"cuda-smoke gave no result within {SECONDS + 10:g} s")
    except OSError as error:
        return _all_skipped(device, f"cuda-smoke cannot be run: {error}", "build it for this machine")
    if children.stopped:
        return ()
    try:
        document = json.loads(output)
    except ValueError:
        return _all_skipped(device, f"cuda-smoke ended with {code} and printed no JSON: {words}", "")
    return results(document, device)


def results(document: Mapping[str, Any], device: SmokeDevice) -> tuple[StageResult, ...]:
    """Return the results of the report that cuda-smoke printed (docs/cuda-builder.md)."""
    try:
        if error := document.get("error"):
            return _error(error, device)
        report = document["devices"][0]
        if error := report.get("error"):
            return _error(error, device)
        of_stage: dict[str, list[Mapping[str, Any]]] = {stage: [] for stage in STAGES}
        for test in report["tests"]:
            of_stage["memory" if str(test["name"]).startswith("memory") else "compute"].append(test)
        return tuple(_result(device, stage, tests, report) for stage, tests in of_stage.items())
    except (AttributeError, IndexError, KeyError, TypeError):
        return _all_skipped(device, "cuda-smoke printed a report that cannot be read", "")


def _error(error: Mapping[str, Any], device: SmokeDevice) -> tuple[StageResult, ...]:
    evidence = f"cuda-smoke: {error['kind']}: {error.get('message', '')}".rstrip(": ")
    fix = str(error.get("fix", ""))
    if error["kind"] in _FAILURES:
        return _all_failed(device, evidence, fix)
    return _all_skipped(device, evidence, fix)


def _result(
    device: SmokeDevice, stage: str, tests: Sequence[Mapping[str, Any]], report: Mapping[str, Any]
) -> StageResult:
    if not tests:
        return _skipped(device, stage, "cuda-smoke ended at a test before it", "")
    failed = [test for test in tests if not test["ok"]]
    if any(_MEMORY_FULL in str(test.get("error")) for test in failed):
        return _skipped(device, stage, f"the GPU's memory is full: {failed[0]['error']}", "end the programs on the GPU")
    if failed:
        return _failed(device, stage, "; ".join(f"{test['name']}: {test.get('error', 'wrong')}" for test in failed))
    # What the tests saw while they compared, not a benchmark: no limit is put on it.
    values = [
        Measurement(f"bandwidth of {test['name']}", test["bandwidth_gb_s"], "GB/s")
        for test in tests
        if "bandwidth_gb_s" in test
    ]
    evidence, seconds = "every value is right", sum(test.get("seconds", 0.0) for test in tests)
    if tested := max((test.get("bytes", 0) for test in tests), default=0):
        total = report["memory_bytes"]
        evidence = f"{tested / 2**30:.1f} of {total / 2**30:.1f} GiB ({tested / total:.0%}) kept {len(tests)} patterns"
    return judge(stage, 2, device, values, evidence=evidence, seconds=seconds)


def _all_failed(device: SmokeDevice, evidence: str, fix: str = "") -> tuple[StageResult, ...]:
    return tuple(_failed(device, stage, evidence, fix) for stage in STAGES)


def _all_skipped(device: SmokeDevice, evidence: str, fix: str) -> tuple[StageResult, ...]:
    return tuple(_skipped(device, stage, evidence, fix) for stage in STAGES)


def _failed(device: SmokeDevice, stage: str, evidence: str, fix: str = "") -> StageResult:
    return StageResult(stage, 2, "fail", evidence, device.uuid, device.index, "reset", fix or _RESET)


def _skipped(device: SmokeDevice, stage: str, evidence: str, fix: str) -> StageResult:
    return StageResult(stage, 2, "skip", evidence, device.uuid, device.index, fix=fix)
