"""The verdict on simulated GPUs: faults that the driver reports, and faults that only work shows."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.inventory import inventory
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.runner import run as smoke
from paddock.smoke.runner.run import Options
from paddock.smoke.stages import measured, table
from paddock.smoke.verdict import baselines
from paddock.smoke.verdict.model import StageResult
from tests.smoke.machines import GPU_0, GPU_1, STAND_IN, results, verdict
from tests.support.nvml import Driver, box, card, installed


def test_a_healthy_machine_passes_the_first_tier() -> None:
    report = verdict(Driver(box("H100", 8)), expect="p5.48xlarge")
    assert (report.verdict, report.action, report.exit_code()) == ("pass", "none", 0)
    assert {stage.stage for stage in report.stages if stage.status == "pass"} >= {"inventory", "driver", "links"}
    assert len(report.devices) == 8


@pytest.mark.parametrize(("change", "status", "stage", "action"), [
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
])  # fmt: skip
def test_a_fault_in_the_driver_gets_its_verdict(change: dict[str, Any], status: str, stage: str, action: str) -> None:
    good, bad = box("H100", 2)
    report = verdict(Driver([good, replace(bad, **change)]))
    assert report.verdict == status
    assert (stage, 1, action) in results(report, status)
    assert all(index == 1 for _, index, _ in results(report, "fail") + results(report, "warn"))
    assert report.exit_code() == (status == "fail")
    assert report.exit_code(strict=True) == 1


def test_healthy_gpus_pass_every_stage_of_all_tiers() -> None:
    report = verdict(Driver(box("H100", 2)), tier=3, soak=1.0, processes=True)
    assert report.verdict == "pass"
    ran = {(stage.stage, stage.gpu) for stage in report.stages if stage.tier > 1}
    per_gpu = {(name, device.uuid) for name in ("memory", "compute", "bandwidth", "throttling", "soak")
               for device in report.devices}  # fmt: skip
    assert ran == per_gpu | {("peers", "all"), ("all-reduce", "all"), ("nvlink", "all")}
    assert report.untested == ()
    limits = {item.name: (item.warn, item.fail) for stage in report.stages for item in stage.measurements}
    assert limits["bf16 products"] == (595, 400)
    assert limits["host to device"] == (48, 38)


@pytest.mark.parametrize(("fault", "stage", "status", "evidence"), [
    ("memory", "memory", "fail", "3 of 1073741824 words did not keep ones; the first ones: 7, 8, 9"),
    ("device-error", "memory", "fail", "illegal memory access"),
    ("wrong-product", "compute", "fail", "computes wrong results"),
    ("other-checksum", "compute", "fail", "checksum bbbb of an exact product, aaaa is right"),
    ("slow", "compute", "fail", "300 TFLOP/s, below 400"),
    ("rather-slow", "compute", "warn", "500 TFLOP/s, below 595"),
    ("slow-memory", "bandwidth", "fail", "below 1333"),
    ("narrow-link", "bandwidth", "fail", "host to device 12 GB/s, below 38"),
    ("half-link", "bandwidth", "fail", "host to device 27 GB/s, below 38"),
    ("fades", "throttling", "warn", "speed kept 62.5 %, below 85"),
    ("changes", "throttling", "fail", "5 numbers of a GEMM changed"),
    ("crashes", "compute", "fail", "SIGABRT"),
])  # fmt: skip
def test_a_fault_under_work_gets_its_verdict(fault: str, stage: str, status: str, evidence: str) -> None:
    report = verdict(Driver(box("H100", 2)), tier=2, faults={GPU_1: fault})
    assert report.verdict == status
    bad = [result for result in report.stages if result.status in ("warn", "fail")]
    assert [(result.stage, result.index) for result in bad] == [(stage, 1)]
    assert evidence in bad[0].evidence
    assert bad[0].fix


def test_low_clocks_under_load_are_a_warning() -> None:
    with installed(Driver([card("H100", reasons=0x40), card("H100", reasons=0x1)])):
        gpus = inventory().gpus
    load = next(stage for stage in table.STAGES if stage.name == "throttling")
    seen = measured.Watched.of(gpus)
    device = measured.SmokeDevice("GPU-0", "H100", 0, "h100")
    document = {"tflops": [800.0, 800.0], "wrong": 0, "seconds": 5.0}
    result = measured.judge_document(load, device, document, measured.Limits.of("h100"), seen, 5.0)
    assert (result.status, result.evidence) == ("warn", "clocks were lowered in 50% of the samples: hardware thermal")


def test_a_gpu_that_failed_the_first_tier_is_not_worked() -> None:
    good, bad = box("H100", 2)
    report = verdict(Driver([good, replace(bad, uncorrected=1)]), tier=2)
    skipped = [stage for stage in report.stages if stage.status == "skip" and stage.index == 1]
    assert [stage.stage for stage in skipped] == ["memory", "compute", "bandwidth", "throttling"]
    assert all("tier 1 failed" in stage.evidence for stage in skipped)


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


def test_half_of_the_lanes_is_half_of_the_speed_and_fails() -> None:
    driver = Driver(box("H100", 1, pcie=(5, 8, 5, 16)))
    report = verdict(driver, tier=2, faults={GPU_0: "half-link"})
    assert ("bandwidth", 0, "replace-node") in results(report, "fail")


def test_a_slot_that_is_narrow_by_design_has_limits_of_its_own() -> None:
    report = verdict(Driver(box("T4", 1, pcie=(3, 8, 3, 16))), tier=2)
    limits = {item.name: (item.warn, item.fail) for stage in report.stages for item in stage.measurements}
    assert limits["host to device"] == (5, 4)


def test_only_one_gpu_at_a_time_copies_from_the_host(tmp_path: Path) -> None:
    verdict(Driver(box("H100", 2)), tier=2, trace=tmp_path)
    times = {
        name: sorted(tuple(map(float, path.read_text().split())) for path in tmp_path.glob(f"{name} *"))
        for name in ("transfer", "load")
    }
    assert len(times["transfer"]) == len(times["load"]) == 2
    assert all(end <= begin for (_, end), (begin, _) in pairwise(times["transfer"]))


def test_a_baseline_that_cannot_be_read_is_said_before_the_test(tmp_path: Path) -> None:
    driver = Driver(box("H100", 1))
    baselines.learn(tmp_path, verdict(driver, tier=2))
    next(tmp_path.iterdir()).write_text("{")
    seen: list[StageResult] = []
    with installed(driver), pytest.raises(SmokeInputError, match="not a baseline"):
        smoke.run(Options(tier=2, baselines=tmp_path), seen.append, program=STAND_IN, instance_type=lambda: None)
    assert seen == []
