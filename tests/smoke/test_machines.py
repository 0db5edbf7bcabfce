"""Which devices of a machine are tested, and what it should have."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from paddock.gpu.host import machine
from paddock.gpu.inventory import inventory
from paddock.gpu.leases.allocation import allocate
from paddock.gpu.leases.manager import Leases
from paddock.gpu.leases.request import Request
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.runner import run as smoke
from paddock.smoke.verdict.model import StageResult
from tests.smoke.machines import results, verdict
from tests.support.nvml import Driver, box, card, installed, mig_box


def test_parts_of_a_gpu_are_tested_by_their_own_uuids() -> None:
    driver = mig_box()
    report = verdict(driver, tier=3, soak=1.0, faults={driver.cards[0].parts[2].uuid: "wrong-product"})
    assert [device.uuid for device in report.devices] == [part.uuid for part in driver.cards[0].parts]
    assert {device.name for device in report.devices} == {"NVIDIA H100 80GB HBM3 1g.10gb"}
    assert [stage.gpu for stage in report.stages if stage.status == "fail"] == [driver.cards[0].parts[2].uuid]
    products = [item for stage in report.stages for item in stage.measurements if item.unit == "TFLOP/s"]
    assert {(item.warn, item.fail) for item in products} == {(None, None)}
    assert report.untested == ()


def test_one_part_can_be_named() -> None:
    driver = mig_box()
    uuid = driver.cards[0].parts[3].uuid
    assert [device.uuid for device in verdict(driver, tier=2, gpus=(uuid,)).devices] == [uuid]


def test_mig_without_parts_says_what_makes_them() -> None:
    report = verdict(Driver([card("H100", mig=(1, 1))]), tier=2)
    assert {stage.evidence for stage in report.untested} == {
        "MIG is on, and the GPU has no parts: `nvidia-smi mig` makes them"
    }


def test_a_machine_of_ec2_is_held_against_its_own_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_contained", lambda root, environ: False)
    missing = verdict(Driver(box("A10G", 3)), instance="g5.12xlarge")
    assert results(missing, "fail") == [("inventory", None, "reboot")]
    assert missing.notes == ("this is g5.12xlarge, by the instance metadata; --expect overrides it",)
    assert verdict(Driver(box("A10G", 3)), instance="g5.12xlarge", expect="3").verdict == "pass"
    unknown = verdict(Driver(box("A10G", 3)), instance="z9.huge")
    assert unknown.verdict == "pass"
    assert "z9.huge, which is not in the catalogue" in unknown.notes[0]


def test_a_container_may_have_some_of_the_gpus() -> None:
    with installed(Driver(box("A10G", 1))):
        found = inventory()
    found = replace(found, machine=replace(found.machine, container=True))
    context = smoke.expect(None, lambda: "g5.12xlarge", found).context
    assert (context.expect, context.expect_model) == (None, "a10g")
    assert smoke.expect("g5.12xlarge", lambda: None, found).context.expect == 4


def test_part_of_a_gpu_has_part_of_the_memory_and_no_limits() -> None:
    driver = Driver([card("L4", total_mib=2900)])
    assert results(verdict(driver), "fail") == [("inventory", 0, "replace-node")]
    report = verdict(driver, tier=2, instance="g6f.large")
    assert report.verdict == "pass"
    assert {item.fail for stage in report.stages for item in stage.measurements} == {None}


def test_gpus_under_test_are_leased_and_leased_ones_are_not_tested() -> None:
    driver = Driver(box("H100", 2))
    leases = Leases()
    with installed(driver):
        allocate(Request(uuids=(driver.cards[1].uuid,)), owner=os.getpid(), leases=leases)
    seen: set[str] = set()

    def note(result: StageResult) -> None:
        if result.stage == "compute":
            seen.update(device.gpu for lease in leases.held() for device in lease.devices)

    report = verdict(driver, tier=2, notify=note)
    assert seen == {card.uuid for card in driver.cards}
    in_use = [stage for stage in report.stages if stage.evidence.startswith("in use")]
    assert [stage.index for stage in in_use] == [1] * 4
    assert "leased to" in in_use[0].evidence
    assert [lease.devices[0].gpu for lease in leases.held()] == [driver.cards[1].uuid]


def test_only_the_named_gpus_are_tested() -> None:
    driver = Driver(box("H100", 3))
    report = verdict(driver, tier=2, gpus=("2", driver.cards[0].uuid))
    assert {stage.index for stage in report.stages if stage.tier == 2} == {0, 2}
    with pytest.raises(SmokeInputError, match="--gpus: 7 is not a GPU of this machine"):
        verdict(driver, gpus=("7",))


def test_a_machine_of_another_type_fails() -> None:
    other = verdict(Driver(box("T4", 1)), expect="g5.xlarge")
    assert ("inventory", 0, "replace-node") in results(other, "fail")
