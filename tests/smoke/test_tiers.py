"""The verdict on simulated GPUs: faults that the driver reports, and faults that only work shows."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.leases.allocation import allocate
from paddock.gpu.leases.manager import Leases
from paddock.gpu.leases.request import Request
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.runner import run as smoke
from paddock.smoke.runner.run import Options
from paddock.smoke.runner.worker import Workers
from paddock.smoke.stages import measured
from paddock.smoke.verdict import baselines
from paddock.smoke.verdict.model import Report, StageResult
from tests.support.nvml import Driver, box, card, installed

STAND_IN = (sys.executable, str(Path(__file__).with_name("worker_stand_in.py")))
GPU_0, GPU_1 = "GPU-00000000", "GPU-00000001"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_GPU_LEASES", str(tmp_path / "leases"))


def verdict(driver: Driver, *, tier: Any = 1, faults: dict[str, str] | None = None, **options: Any) -> Report:
    environ = {**os.environ, "FAULTS": json.dumps(faults or {})}
    with installed(driver):
        return smoke.run(Options(tier=tier, **options), workers=Workers(STAND_IN), environ=environ)


def results(report: Report, status: str) -> list[tuple[str, int | None, str]]:
    return [(stage.stage, stage.index, stage.action) for stage in report.stages if stage.status == status]


def test_a_healthy_machine_passes_the_first_tier() -> None:
    report = verdict(Driver(box("H100", 8)), expect="p5.48xlarge")
    assert (report.verdict, report.action, report.exit_code()) == ("pass", "none", 0)
    assert {stage.stage for stage in report.stages if stage.status == "pass"} >= {"inventory", "driver", "links"}
    assert len(report.devices) == 8


@pytest.mark.parametrize(
    ("change", "status", "stage", "action"),
    [
        ({"uncorrected": 1}, "fail", "health", "reset"),
        ({"sram": 5}, "fail", "health", "replace-node"),
        ({"remapped": (0, 1, 0, 1)}, "fail", "health", "replace-node"),
        ({"remapped": (0, 1, 1, 0)}, "fail", "health", "reset"),
        ({"recovery": 2}, "fail", "health", "reboot"),
        ({"lost": True}, "fail", "inventory", "reboot"),
        ({"total_mib": 40000}, "fail", "inventory", "replace-node"),
        ({"pcie": (5, 8, 5, 16)}, "warn", "links", "reboot"),
        ({"dead_links": frozenset({3})}, "warn", "links", "reset"),
        ({"reasons": 0x48, "temperature": 91}, "warn", "health", "none"),
        ({"processes": [(4242, 300)]}, "warn", "processes", "restart-app"),
    ],
)
def test_a_fault_in_the_driver_gets_its_verdict(change: dict[str, Any], status: str, stage: str, action: str) -> None:
    good, bad = box("H100", 2)
    report = verdict(Driver([good, replace(bad, **change)]))
    assert report.verdict == status
    assert (stage, 1, action) in results(report, status)
    assert all(index == 1 for _, index, _ in results(report, "fail") + results(report, "warn"))
    assert report.exit_code() == (status == "fail")
    assert report.exit_code(strict=True) == 1


def test_a_machine_of_another_type_fails() -> None:
    missing = verdict(Driver(box("A10G", 3)), expect="g5.12xlarge")
    assert results(missing, "fail") == [("inventory", None, "reboot")]
    other = verdict(Driver(box("T4", 1)), expect="g5.xlarge")
    assert ("inventory", 0, "replace-node") in results(other, "fail")


def test_healthy_gpus_pass_every_stage_of_all_tiers() -> None:
    report = verdict(Driver(box("H100", 2)), tier=3, soak=1.0)
    assert report.verdict == "pass"
    ran = {(stage.stage, stage.gpu) for stage in report.stages if stage.tier > 1}
    per_gpu = {(name, device.uuid) for name in ("memory", "compute", "bandwidth", "throttling", "soak")
               for device in report.devices}  # fmt: skip
    assert ran == per_gpu | {("peers", "all"), ("all-reduce", "all")}
    limits = {item.name: (item.warn, item.fail) for stage in report.stages for item in stage.measurements}
    assert limits["bf16 products"] == (595, 400)
    assert limits["host to device"] == (48, 38)


@pytest.mark.parametrize(
    ("fault", "stage", "status", "evidence"),
    [
        ("memory", "memory", "fail", "3 of 1073741824 words did not keep ones; the first ones: 7, 8, 9"),
        ("device-error", "memory", "fail", "illegal memory access"),
        ("wrong-product", "compute", "fail", "computes wrong results"),
        ("other-checksum", "compute", "fail", "checksum bbbb, other GPUs of this model have aaaa"),
        ("slow", "compute", "fail", "300 TFLOP/s, below 400"),
        ("rather-slow", "compute", "warn", "500 TFLOP/s, below 595"),
        ("slow-memory", "bandwidth", "fail", "below 1333"),
        ("narrow-link", "bandwidth", "fail", "host to device 12 GB/s, below 38"),
        ("crashes", "compute", "fail", "SIGABRT"),
    ],
)
def test_a_fault_under_work_gets_its_verdict(fault: str, stage: str, status: str, evidence: str) -> None:
    report = verdict(Driver(box("H100", 3)), tier=2, faults={GPU_1: fault})
    assert report.verdict == status
    bad = [result for result in report.stages if result.status in ("warn", "fail")]
    assert [(result.stage, result.index) for result in bad] == [(stage, 1)]
    assert evidence in bad[0].evidence
    assert bad[0].fix


def test_a_stage_that_hangs_is_killed_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = tuple(replace(stage, seconds=3.0) for stage in measured.STAGES)
    monkeypatch.setattr(measured, "STAGES", quick)
    report = verdict(Driver(box("H100", 2)), tier=2, faults={GPU_0: "hangs"})
    by_gpu = {index: [stage.status for stage in report.stages if stage.index == index] for index in (0, 1)}
    assert by_gpu == {0: ["pass", "fail"], 1: ["pass"] * 4}  # a GPU that hangs is left alone
    assert "no result within 3 s" in next(stage for stage in report.stages if stage.status == "fail").evidence


def test_low_clocks_under_load_are_a_warning() -> None:
    samples = [card("H100", reasons=0x40), card("H100", reasons=0x1)]
    gpus = [_gpu(sample) for sample in samples]
    load = next(stage for stage in measured.STAGES if stage.name == "throttling")
    seen = measured.Watched.of(gpus)
    device = measured.Device("GPU-0", "H100", 0, "h100")
    document = {"tflops": [800.0, 800.0], "wrong": 0, "seconds": 5.0}
    result = measured.judge_document(load, device, document, measured.Limits.of("h100"), seen, 5.0)
    assert (result.status, result.evidence) == ("warn", "clocks were lowered in 50% of the samples: hardware thermal")


def _gpu(simulated: Any) -> Any:
    from paddock.gpu.inventory import inventory

    with installed(Driver([simulated])):
        return inventory().gpus[0]


def test_a_gpu_that_failed_the_first_tier_is_not_worked() -> None:
    good, bad = box("H100", 2)
    report = verdict(Driver([good, replace(bad, uncorrected=1)]), tier=2)
    skipped = [stage for stage in report.stages if stage.status == "skip" and stage.index == 1]
    assert [stage.stage for stage in skipped] == ["memory", "compute", "bandwidth", "throttling"]
    assert all("tier 1 failed" in stage.evidence for stage in skipped)


def test_gpus_under_test_are_leased_and_leased_ones_are_not_tested() -> None:
    driver = Driver(box("H100", 2))
    leases = Leases()
    with installed(driver):
        allocate(Request(uuids=(driver.cards[1].uuid,)), owner=os.getpid(), leases=leases)
    seen: set[str] = set()

    def note(result: StageResult) -> None:
        if result.stage == "compute":
            seen.update(device.gpu for lease in leases.held() for device in lease.devices)

    environ = {**os.environ, "FAULTS": "{}"}
    with installed(driver):
        report = smoke.run(Options(tier=2), note, workers=Workers(STAND_IN), environ=environ)
    assert seen == {card.uuid for card in driver.cards}
    assert [stage.index for stage in report.stages if stage.evidence.startswith("in use")] == [1] * 4
    assert [lease.devices[0].gpu for lease in leases.held()] == [driver.cards[1].uuid]


def test_an_unknown_model_is_reported_and_never_failed() -> None:
    driver = Driver([card("H100", name="NVIDIA Experimental", device_id=0x9999)])
    report = verdict(driver, tier=2, faults={GPU_0: "slow"})
    measurements = [item for stage in report.stages for item in stage.measurements if item.unit == "TFLOP/s"]
    assert report.verdict == "pass"
    assert {(item.warn, item.fail) for item in measurements} == {(None, None)}


def test_a_device_slower_than_it_was_is_a_warning(tmp_path: Path) -> None:
    driver = Driver(box("H100", 1))
    first = verdict(driver, tier=2)
    assert len(baselines.learn(tmp_path, first)) == 1
    assert verdict(driver, tier=2, baselines=tmp_path).verdict == "pass"
    learned = json.loads(next(tmp_path.iterdir()).read_text())
    learned["speeds"]["bf16 products"] = 900.0
    next(tmp_path.iterdir()).write_text(json.dumps(learned))
    again = verdict(driver, tier=2, baselines=tmp_path)
    assert results(again, "warn") == [("compute", 0, "none")]
    assert "below 855" in next(stage for stage in again.stages if stage.status == "warn").evidence


def test_an_interrupt_keeps_what_is_known() -> None:
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def interrupt(result: StageResult) -> None:
        if result.stage == "memory":
            threading.Timer(0.5, signal.pthread_kill, (main_thread, signal.SIGINT)).start()

    environ = {**os.environ, "FAULTS": json.dumps({GPU_0: "hangs"})}
    start = time.monotonic()
    with installed(Driver(box("H100", 1))):
        report = smoke.run(Options(tier=2), interrupt, workers=Workers(STAND_IN), environ=environ)
    assert time.monotonic() - start < measured.STAGES[1].seconds
    assert (report.complete, report.exit_code()) == (False, 130)
    assert [stage.stage for stage in report.stages if stage.tier == 2] == ["memory"]
    assert not Leases().held()


def test_only_the_named_gpus_are_tested() -> None:
    driver = Driver(box("H100", 3))
    report = verdict(driver, tier=2, gpus=("2", driver.cards[0].uuid))
    assert {stage.index for stage in report.stages if stage.tier == 2} == {0, 2}
    with pytest.raises(SmokeInputError, match="--gpus: 7 is no GPU of this machine"):
        verdict(driver, gpus=("7",))
