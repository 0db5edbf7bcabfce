"""Stages that hang, fail to start or are interrupted, on simulated GPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.leases.manager import Leases
from paddock.process import pids, pids_naming, read_stat, session_members
from paddock.smoke.runner import run as smoke
from paddock.smoke.runner.run import Options
from paddock.smoke.stages import table
from paddock.smoke.verdict.model import StageResult
from tests.smoke.machines import GPU_0, STAND_IN, results, verdict
from tests.support.nvml import Driver, box, installed
from tests.support.waiting import until


def test_an_interrupt_keeps_what_is_known() -> None:
    main_thread = threading.main_thread().ident

    def interrupt(result: StageResult) -> None:
        if result.stage == "memory":
            threading.Timer(0.1, signal.pthread_kill, (main_thread, signal.SIGINT)).start()

    environ = {**os.environ, "FAULTS": json.dumps({GPU_0: "hangs"})}
    start = time.monotonic()
    with installed(Driver(box("H100", 1))):
        report = smoke.run(Options(tier=2), interrupt, program=STAND_IN, environ=environ, instance_type=lambda: None)
    assert time.monotonic() - start < table.STAGES[1].seconds
    assert (report.complete, report.exit_code()) == (False, 130)
    assert [stage.stage for stage in report.stages if stage.tier == 2] == ["memory"]
    assert not Leases().held()


def test_workers_end_when_the_test_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, sys; import os; from tests.smoke.test_endings import *;"
        " environ = {**os.environ, 'FAULTS': '{\"GPU\": \"hangs\"}', 'TRACE': ''}\n"
        "with installed(Driver(box('H100', 1))):\n"
        "    smoke.run(Options(tier=2), lambda r: print(r.stage, flush=True), program=STAND_IN, environ=environ)"
    )
    environ = {**os.environ, "PADDOCK_GPU_LEASES": str(tmp_path), "PADDOCK_INSTANCE_TYPE": "z9.huge"}
    root = Path(__file__).parents[2]
    test = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root, env=environ)
    assert any(line == "memory\n" for line in test.stdout)
    until(lambda: _children(test.pid))
    sessions = _children(test.pid)
    test.kill()
    test.wait()
    test.stdout.close()
    until(lambda: not any(session_members(session) for session in sessions))


def _children(pid: int) -> list[int]:
    return [child for child in pids() if (stat := read_stat(child)) and stat.parent == pid and not stat.ended]


def test_an_interrupt_on_the_processor_ends_the_worker() -> None:
    main_thread = threading.main_thread().ident
    named = f"import time; time.sleep(600)  # of {os.getpid()}"

    def interrupt() -> None:
        until(lambda: pids_naming(named))
        signal.pthread_kill(main_thread, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    report = smoke.run(Options(tier=2, cpu=True), program=(sys.executable, "-c", named))
    thread.join()
    assert (report.complete, report.exit_code()) == (False, 130)
    assert not pids_naming(named)


def test_a_stage_that_hangs_is_killed_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = tuple(replace(stage, seconds=1.0) if stage.name == "compute" else stage for stage in table.STAGES)
    monkeypatch.setattr(table, "STAGES", quick)
    report = verdict(Driver(box("H100", 2)), tier=2, faults={GPU_0: "hangs"}, processes=True)
    by_gpu = {index: [stage.status for stage in report.stages if stage.index == index] for index in (0, 1)}
    assert by_gpu == {0: ["pass", "fail", "skip", "skip"], 1: ["pass"] * 4}  # a GPU that hangs is left alone
    assert "no result within 1 s" in next(stage for stage in report.stages if stage.status == "fail").evidence
    assert report.untested[0].evidence == "it is left alone after it hung in the stage compute"


def test_torch_that_does_not_load_in_time_fails_no_gpu() -> None:
    report = verdict(Driver(box("H100", 1)), tier=2, faults={GPU_0: "loads-for-ever"}, loading=0.2)
    assert (report.verdict, len(report.untested)) == ("pass", 4)
    assert report.untested[0].evidence == "torch was not loaded within 0.2 s"


@pytest.mark.parametrize(("fault", "stages", "evidence"), [
    ("cpu-only-torch", ["memory", "compute", "bandwidth", "throttling"], "built for the CPU alone"),
    ("crashes-early", ["memory", "compute", "bandwidth", "throttling"], "ended by SIGABRT"),
    ("is-killed", ["compute"], "SIGKILL, as the kernel ends programs when memory is short"),
    ("unreadable", ["compute"], "a result that cannot be read"),
])  # fmt: skip
def test_what_the_machine_lacks_fails_no_gpu(fault: str, stages: list[str], evidence: str) -> None:
    report = verdict(Driver(box("H100", 1)), tier=2, faults={GPU_0: fault}, processes=True)
    assert (report.verdict, report.action, report.exit_code(), report.exit_code(must_run=True)) == (
        "pass",
        "none",
        0,
        1,
    )
    assert [stage.stage for stage in report.untested] == stages
    assert evidence in report.untested[0].evidence


def test_cuda_that_cannot_start_fails_with_what_starts_it() -> None:
    report = verdict(Driver(box("H100", 1)), tier=2, faults={GPU_0: "no-fabric"})
    assert results(report, "fail") == [("memory", 0, "reboot")]
    assert next(stage for stage in report.stages if stage.status == "fail").fix == "start it"


class HangingDriver(Driver):
    """Answers nothing until it is released, and then with an error."""

    def __init__(self) -> None:
        super().__init__(box("H100", 1))
        self.released = threading.Event()

    def do_nvmlDeviceGetCount_v2(self, out: Any) -> None:
        self.released.wait(600)
        raise RuntimeError("released")


@pytest.mark.parametrize("threads", [0, 1])
def test_a_driver_that_hangs_fails_the_machine(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_GPU_DEADLINE", "0.3")
    driver, before = HangingDriver(), {*threading.enumerate()}
    for _ in range(threads):
        threading.Thread(target=driver.released.wait, args=(600,)).start()
    try:
        report = verdict(driver, tier=2)
    finally:
        # Beside other threads the reading is a thread too, which would keep the driver's lock from the tests after it.
        driver.released.set()
        for thread in {*threading.enumerate()} - before:
            thread.join(30)
    assert (report.verdict, report.action, len(report.stages)) == ("fail", "reboot", 1)
    assert "has not returned" in report.stages[0].evidence
    monkeypatch.delenv("PADDOCK_GPU_DEADLINE")
    assert verdict(Driver(box("H100", 1))).verdict == "pass", "the lock of the driver is free again"
