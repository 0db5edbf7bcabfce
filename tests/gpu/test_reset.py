"""A reset: what it would do, when it is refused, and that what was changed is put back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from paddock.gpu import inventory as detect
from paddock.gpu import serialization
from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.leases.lease import Lease, LeasedDevice
from paddock.gpu.model import Gpu, Inventory, Machine, Mig, MigDevice, NvLink, Pair, Process
from paddock.gpu.reset import CommandResult, ResetSteps, execute, plan
from tests.support.boxes import lease
from tests.support.nvml import Driver, Fault, box, card

HOST = Machine("node", "linux", "x86_64")
ALONE = Gpu(0, "GPU-0", "Tesla T4", "nvidia", persistence=True, processes=())


def machine(*gpus: Gpu, **changes: Any) -> Inventory:
    return replace(Inventory("2026-11-20T10:00:00Z", HOST, "nvml", gpus), **changes)


def linked(count: int, to: Any = "switch", **changes: Any) -> tuple[Gpu, ...]:
    return tuple(
        replace(ALONE, index=n, uuid=f"GPU-{n}", nvlinks=(NvLink(0, True, to),), **changes) for n in range(count)
    )


def commands(reset_plan: ResetSteps) -> list[str]:
    return [" ".join(step.command) for step in reset_plan.steps]


class Runner:
    """Takes the commands down; those that begin as in `failing` fail."""

    def __init__(self, *failing: str) -> None:
        self.ran: list[str] = []
        self.failing = failing

    def __call__(self, command: Sequence[str]) -> CommandResult:
        line = " ".join(command)
        self.ran.append(line)
        failed = any(line.endswith(end) for end in self.failing)
        return CommandResult(15 if failed else 0, "Unable to reset GPU: in use by another client\n" if failed else "")


def test_one_gpu_is_reset_with_persistence_off_and_on_again() -> None:
    reset_plan = plan(machine(ALONE, replace(ALONE, index=1, uuid="GPU-1")), "GPU-0")
    assert commands(reset_plan) == ["nvidia-smi -i GPU-0 -pm 0", "nvidia-smi -i GPU-0 -r", "nvidia-smi -i GPU-0 -pm 1"]
    assert (reset_plan.refused, reset_plan.gpus) == ((), ("GPU-0",))


def test_persistence_that_is_off_stays_off() -> None:
    assert commands(plan(machine(replace(ALONE, persistence=False)), "GPU-0")) == ["nvidia-smi -i GPU-0 -r"]


def test_gpus_on_nvswitches_are_reset_together_with_the_fabric_manager() -> None:
    pairs = tuple(Pair(a, b, "numa-node", 18) for a in range(8) for b in range(a + 1, 8))
    reset_plan = plan(machine(*linked(8), pairs=pairs), "GPU-3")
    assert len(reset_plan.gpus) == 8
    assert [line.split("GPU-")[0] for line in commands(reset_plan)] == [
        "nvidia-smi -i ", "nvidia-smi -r", "systemctl restart nvidia-fabricmanager", "nvidia-smi -i ",
    ]  # fmt: skip
    assert "are reset together" in reset_plan.notes[0]


def test_only_gpus_that_links_join_go_together() -> None:
    pairs = (Pair(0, 1, "system", 4), Pair(1, 2, "system", 4), Pair(0, 3, "system", 0), Pair(2, 3, "system", 0))
    gpus = (*linked(3, "gpu"), replace(ALONE, index=3, uuid="GPU-3"))
    reset_plan = plan(machine(*gpus, pairs=pairs), "GPU-0")
    assert reset_plan.gpus == ("GPU-0", "GPU-1", "GPU-2")
    assert "nvidia-smi -i GPU-0,GPU-1,GPU-2 -r" in commands(reset_plan)
    assert plan(machine(*gpus, pairs=pairs), "GPU-3").gpus == ("GPU-3",)


def test_where_the_topology_is_not_known_all_with_links_go_together() -> None:
    assert plan(machine(*linked(2)), "GPU-0").gpus == ("GPU-0", "GPU-1")


LEASE = lease("GPU-0", pid=812)


@pytest.mark.parametrize(("inventory", "leases", "why"), [
    (machine(replace(ALONE, processes=(Process(77, "compute", 400, "python3"),))), (), "in use by python3 77"),
    (machine(replace(ALONE, processes=tuple(Process(n, "compute") for n in range(1, 6)))), (), "and 2 more"),
    (machine(replace(ALONE, processes=None)), (), "cannot be read, so it may be in use"),
    (machine(ALONE), (LEASE,), r"GPU 0 is leased to ci \(python train.py, pid 812"),
    (machine(replace(ALONE, state="lost", reason="off the bus")), (), "reboot the machine"),
    (machine(ALONE, machine=replace(HOST, container=True)), (), "reset it on the host"),
    (machine(ALONE, machine=replace(HOST, wsl=True)), (), "belongs to Windows"),
    (machine(replace(ALONE, vendor="amd", index=4)), (), "amd-smi reset --gpureset --gpu 4"),
    (machine(replace(ALONE, vendor="apple")), (), "restart the machine"),
])  # fmt: skip
def test_it_is_refused(inventory: Inventory, leases: tuple[Lease, ...], why: str) -> None:
    reset_plan = plan(inventory, "GPU-0", leases)
    assert reset_plan.steps == ()
    with pytest.raises(GpuError, match=why):
        execute(reset_plan, lambda: inventory, lambda: leases, run=Runner(), root=True)


def test_work_on_one_gpu_of_a_board_keeps_all_of_it() -> None:
    gpus = list(linked(2))
    gpus[1] = replace(gpus[1], processes=(Process(77, "compute"),))
    assert plan(machine(*gpus), "GPU-0").refused == ("GPU 1 is in use by pid 77",)
    of_part = replace(LEASE, devices=(LeasedDevice("M", "GPU-1"),))
    assert "GPU 1 is leased" in plan(machine(*linked(2)), "GPU-0", [of_part]).refused[0]


def test_an_unreadable_gpu_is_reset_if_the_driver_requests_it() -> None:
    asking = replace(ALONE, state="unreadable", reason="it needs a reset", recovery_action="gpu-reset", processes=None)
    assert "nvidia-smi -i GPU-0 -r" in commands(plan(machine(asking), "GPU-0"))


def test_a_mig_part_resets_its_gpu() -> None:
    parts = Mig(True, True, (MigDevice("MIG-1", "1g.10gb", 7, 0),))
    reset_plan = plan(machine(replace(ALONE, mig=parts)), "MIG-1")
    assert reset_plan.uuid == "GPU-0"
    assert "the whole GPU is reset" in reset_plan.notes[0]
    assert "must be created again" in reset_plan.notes[1]


def test_a_gpu_that_is_not_here_is_bad_input() -> None:
    with pytest.raises(GpuInputError, match=r"no GPU 'GPU-O'(.|\n)*did you mean GPU-0\?") as caught:
        plan(machine(ALONE), "GPU-O")
    assert caught.value.exit_code == 2
    with pytest.raises(GpuInputError, match="There is no GPU here"):
        plan(machine(reason="There is no GPU here."), "GPU-0")


# --- doing it


def test_steps_run_in_order_and_the_gpus_are_read_again() -> None:
    run, inventory = Runner(), machine(ALONE)
    result = execute(plan(inventory, "GPU-0"), lambda: inventory, run=run, root=True)
    assert run.ran == commands(result.plan)
    assert (result.ok, result.after) == (True, (("GPU-0", "ok"),))
    assert json.loads(json.dumps(serialization.data(result)))["schema"] == 1


def test_a_failed_reset_restores_persistence_and_restarts_nothing() -> None:
    run, inventory = Runner("-r"), machine(*linked(2))
    result = execute(plan(inventory, "GPU-0"), lambda: inventory, run=run, root=True)
    assert run.ran == ["nvidia-smi -i GPU-0,GPU-1 -pm 0", "nvidia-smi -r", "nvidia-smi -i GPU-0,GPU-1 -pm 1"]
    assert not result.ok
    assert result.outcomes[1].output == "Unable to reset GPU: in use by another client"


def test_ctrl_c_puts_back_what_was_changed() -> None:
    ran: list[str] = []

    def run(command: Sequence[str]) -> CommandResult:
        ran.append(command[-1])
        if command[-1] == "-r":
            raise KeyboardInterrupt
        return CommandResult(0, "")

    with pytest.raises(KeyboardInterrupt):
        execute(plan(machine(ALONE), "GPU-0"), lambda: machine(ALONE), run=run, root=True)
    assert ran == ["0", "-r", "1"]


def test_work_that_began_after_the_plan_stops_it() -> None:
    busy, run = machine(replace(ALONE, processes=(Process(9, "compute"),))), Runner()
    with pytest.raises(GpuError, match="in use by pid 9"):
        execute(plan(machine(ALONE), "GPU-0"), lambda: busy, run=run, root=True)
    with pytest.raises(GpuError, match="is leased"):
        execute(plan(machine(ALONE), "GPU-0"), lambda: machine(ALONE), lambda: [LEASE], run=run, root=True)
    changed = machine(replace(ALONE, persistence=False))
    with pytest.raises(GpuError, match="changed since the plan"):
        execute(plan(machine(ALONE), "GPU-0"), lambda: changed, run=run, root=True)
    assert run.ran == []


def test_it_needs_root_and_says_so() -> None:
    run = Runner()
    with pytest.raises(GpuError, match=r"needs root(.|\n)*sudo"):
        execute(plan(machine(ALONE), "GPU-0"), lambda: machine(ALONE), run=run, root=False)
    assert run.ran == []


def test_a_gpu_that_stays_lost_is_a_failed_reset() -> None:
    looks = iter([machine(ALONE), machine(replace(ALONE, state="lost"))])
    result = execute(plan(machine(ALONE), "GPU-0"), lambda: next(looks), run=Runner(), root=True)
    assert (result.ok, result.after) == (False, (("GPU-0", "lost"),))


def test_a_missing_nvidia_smi_names_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = execute(plan(machine(ALONE), "GPU-0"), lambda: machine(ALONE), root=True)
    assert not result.ok
    assert "comes with the driver's utilities" in result.outcomes[0].output


def test_nvidia_smi_is_run_and_its_output_returned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A script in nvidia-smi's place."""
    script = tmp_path / "nvidia-smi"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/ran\n[ "$3" = -r ] && echo "GPU was reset"\nexit 0\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    result = execute(plan(machine(ALONE), "GPU-0"), lambda: machine(ALONE), root=True)
    assert (tmp_path / "ran").read_text() == "-i GPU-0 -pm 0\n-i GPU-0 -r\n-i GPU-0 -pm 1\n"
    assert (result.ok, result.outcomes[1].output) == (True, "GPU was reset")


# --- soft


def test_a_soft_reset_uses_nvml_for_one_gpu_only(driver: Callable[[Driver], Driver]) -> None:
    made_up = driver(Driver(box("A100", 2)))

    def read_inventory() -> Inventory:
        return replace(detect.inventory(processes=True, topology=True), machine=HOST)

    uuid = read_inventory().gpus[1].uuid or ""
    reset_plan = plan(read_inventory(), uuid, kind="soft")
    assert (reset_plan.gpus, reset_plan.refused) == ((uuid,), ())
    result = execute(reset_plan, read_inventory, root=True)
    assert result.ok
    assert [outcome.code for outcome in result.outcomes] == [0] * 5
    for step in reset_plan.steps:
        assert made_up.calls[step.command[0]] == 1, step
    made_up.cards[1].faults["nvmlDeviceSetComputeMode"] = Fault(pynvml.NVML_ERROR_NO_PERMISSION)
    failed = execute(plan(read_inventory(), uuid, kind="soft"), read_inventory, root=True)
    assert (failed.ok, failed.outcomes[-1].code) == (False, pynvml.NVML_ERROR_NO_PERMISSION)


def test_a_soft_reset_ends_nothing_so_work_may_go_on(driver: Callable[[Driver], Driver]) -> None:
    driver(Driver([card("T4", processes=[(77, 400)])]))
    inventory = replace(detect.inventory(processes=True), machine=HOST)
    uuid = inventory.gpus[0].uuid or ""
    assert plan(inventory, uuid, kind="soft").refused == ()
    assert "in use by" in plan(inventory, uuid).refused[0]
