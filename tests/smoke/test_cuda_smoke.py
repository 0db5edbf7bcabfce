"""The compiled cuda-smoke in place of torch, with programs that print what it would."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from paddock.children import Children
from paddock.smoke.runner import cuda_smoke, worker
from paddock.smoke.runner import run as smoke
from paddock.smoke.runner.run import Options
from paddock.smoke.verdict.model import MachineVerdict, SmokeDevice, StageResult
from tests.support.nvml import Driver, box, installed
from tests.support.waiting import until

GPU = SmokeDevice("GPU-0", "Tesla T4", 0, "t4")
GIB = 1 << 30
PATTERNS = ("memory_walking_ones", "memory_walking_zeros", "memory_address", "memory_random")


def report(*changed: dict[str, Any], gone: int = 0, **more: Any) -> dict[str, Any]:
    """Return what cuda-smoke prints of a healthy T4, with some tests otherwise and without the last ones."""
    tests = [{"name": "vector_add", "ok": True, "seconds": 0.3, "bandwidth_gb_s": 243.1, "elements": 1 << 24}]
    tests += [
        {"name": name, "ok": True, "seconds": 0.5, "bandwidth_gb_s": 260.0, "bytes": 8 * GIB, "passes": 64, "errors": 0}
        for name in PATTERNS
    ]
    tests = tests[: len(tests) - gone]
    for change in changed:
        next(test for test in tests if test["name"] == change["name"]).update(change)
    device = {"index": 0, "name": "Tesla T4", "memory_bytes": 16 * GIB, "ok": not changed, "tests": tests, **more}
    return {"schema": 1, "devices": [device], "ok": not changed}


def results(document: Any) -> list[tuple[str, str, str]]:
    return [(result.stage, result.status, result.action) for result in cuda_smoke.results(document, GPU)]


def test_its_patterns_are_one_stage_with_the_part_tested() -> None:
    memory, compute = cuda_smoke.results(report(), GPU)
    assert (memory.stage, memory.status, compute.stage, compute.status) == ("memory", "pass", "compute", "pass")
    assert memory.evidence == "8.0 of 16.0 GiB (50%) kept 4 patterns"
    assert [item.fail for item in memory.measurements] == [None] * 4


def test_a_pattern_that_was_not_kept_fails() -> None:
    change = {"name": "memory_address", "ok": False, "error": "2 of 64 words read back wrong in pass 1 of 1"}
    assert results(report(change)) == [("memory", "fail", "reset"), ("compute", "pass", "none")]
    assert "memory_address: 2 of 64 words" in cuda_smoke.results(report(change), GPU)[0].evidence


def test_memory_that_others_have_fails_no_gpu() -> None:
    change = {
        "name": "memory_walking_ones",
        "ok": False,
        "error": "allocating GPU memory: cudaErrorMemoryAllocation (out of memory)",
    }
    assert results(report(change, gone=3)) == [("memory", "skip", "none"), ("compute", "pass", "none")]


def test_tests_behind_a_failure_were_not_run() -> None:
    change = {"name": "vector_add", "ok": False, "error": "launch: cudaErrorIllegalAddress"}
    assert results(report(change, gone=4)) == [("memory", "skip", "none"), ("compute", "fail", "reset")]


@pytest.mark.parametrize(("kind", "status"), [
    ("no_driver", "skip"),
    ("insufficient_driver", "skip"),
    ("no_device", "skip"),
    ("driver_mismatch", "skip"),
    ("no_kernel_image", "skip"),
    ("system_not_ready", "fail"),
    ("device_error", "fail"),
    ("timeout", "fail"),
    ("crash", "fail"),
])  # fmt: skip
def test_machine_errors_are_distinguished_from_gpu_errors(kind: str, status: str) -> None:
    error = {"kind": kind, "message": "what was seen", "fix": "what mends it"}
    for document in ({"schema": 1, "devices": [], "error": error}, report(tests=[], error=error)):
        found = cuda_smoke.results(document, GPU)
        assert {(result.stage, result.status) for result in found} == {("memory", status), ("compute", status)}
        assert {result.fix for result in found} == {"what mends it"}
        assert found[0].evidence == f"cuda-smoke: {kind}: what was seen"


@pytest.mark.parametrize("document", [[], {}, {"devices": []}, {"devices": [{}]}, {"devices": [{"tests": [{}]}]}, 7])
def test_a_report_that_cannot_be_read_tests_nothing(document: Any) -> None:
    assert results(document) == [("memory", "skip", "none"), ("compute", "skip", "none")]


def program(folder: Path, text: str) -> Path:
    path = folder / "cuda-smoke"
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("text", "evidence"), [
    ("\x7fELF of another machine", "cuda-smoke cannot be run"),
    ("#!/bin/sh\necho words; echo gone >&2; exit 3\n", "ended with 3 and printed no JSON: gone"),
])  # fmt: skip
def test_a_program_that_does_not_run_tests_nothing(tmp_path: Path, text: str, evidence: str) -> None:
    found = cuda_smoke.run(program(tmp_path, text), GPU, os.environ, Children())
    assert [result.status for result in found] == ["skip", "skip"]
    assert evidence in found[0].evidence


def test_without_torch_its_tests_run_and_the_others_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = machine(tmp_path, monkeypatch, f"#!/bin/sh\necho '{json.dumps(report())}'\n", tier=3)
    assert found.verdict == "pass"
    assert {stage.stage for stage in found.stages if stage.tier > 1 and stage.status == "pass"} == {"memory", "compute"}
    untested = {(stage.stage, stage.gpu) for stage in found.untested}
    assert untested == {(name, "all") for name in ("peers", "all-reduce", "nvlink")} | {
        (name, device.uuid) for name in ("bandwidth", "throttling", "soak") for device in found.devices
    }
    assert found.exit_code(must_run=True) == 1


def test_an_interrupt_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main_thread = threading.main_thread().ident
    runs = tmp_path / "runs"

    def interrupt() -> None:
        until(runs.exists)
        signal.pthread_kill(main_thread, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    begin = time.monotonic()
    found = machine(tmp_path, monkeypatch, f"#!/bin/sh\ntouch '{runs}'\nsleep 600\n", tier=2)
    interrupter.join()
    assert time.monotonic() - begin < cuda_smoke.SECONDS
    assert (found.complete, [stage for stage in found.stages if stage.tier == 2]) == (False, [])


def machine(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, **options: Any) -> MachineVerdict:
    """Test two GPUs on a machine that has no torch, and this program."""
    monkeypatch.setattr(worker, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", f"{program(folder, text).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PADDOCK_GPU_LEASES", str(folder / "leases"))
    results: list[StageResult] = []
    with installed(Driver(box("H100", 2))):
        return smoke.run(Options(**options), results.append, instance_type=lambda: None)
