"""GPUs from the driver to a replica's lease, under a simulated NVIDIA driver: identity, MIG, processes of others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddock.gpu.inventory import inventory
from paddock.gpu.leases.manager import Leases
from paddock.models.presets import preset
from paddock.modes.effects import lease_share
from paddock.modes.policy import of_mode
from paddock.serve.agents.inventory_devices import device_variables
from paddock.serve.agents.this_machine import this_machine
from paddock.serve.errors import ServeError
from paddock.serve.placement.device import Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import Infeasible, ModelPlacement
from paddock.serve.placement.request import Policy, Request
from paddock.serve.replica.lease import DeviceLease, lease_devices
from tests.support.nvml import Driver, Part, box, card, installed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases need Linux's /proc")

TINY = Request(preset("tiny"), "fp16", 256)
DESKTOP_PID = 1


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """Return a machine with the GPUs of a simulated driver, and leases of its own."""
    opened = []

    def with_driver(driver: Driver) -> Machine:
        block = installed(driver)
        block.__enter__()
        opened.append(block)
        return Machine(tmp_path)

    yield with_driver
    for block in reversed(opened):
        block.__exit__(None, None, None)


class Machine:
    def __init__(self, folder: Path) -> None:
        self.environ = {"PADDOCK_GPU_LEASES": str(folder / "leases")}

    def devices(self) -> list[Device]:
        """Return its GPUs as its agent reports them."""
        found = this_machine(inventory(processes=True), self.environ)
        return [device for device in found if device.backend != "cpu"]

    def plan(self, policy: Policy) -> ModelPlacement | Infeasible:
        return place(TINY, self.devices(), policy)

    def lease(self, device: Device, mode: str = "aggressive") -> DeviceLease | None:
        """Lease the device as a replica there does."""
        leases = Leases(environ=self.environ)
        share = lease_share(of_mode(mode))  # type: ignore[arg-type]
        return lease_devices([device.uuid or ""], share, environ=self.environ, leases=leases, wait=0)


def used(plan: ModelPlacement | Infeasible) -> list[str]:
    return (
        [placed.device.label for group in plan.groups for placed in group.devices]
        if isinstance(plan, ModelPlacement)
        else []
    )


def test_a_process_is_shown_its_gpu_by_uuid_and_not_by_index(machine: Callable[..., Machine]) -> None:
    """CUDA's 0 is the fastest GPU, here the driver's 1."""
    here = machine(Driver([card("T4", bus=0x1E), card("A10G", bus=0x1F)]))
    t4, a10g = here.devices()
    assert (t4.name, a10g.name) == ("Tesla T4", "NVIDIA A10G")
    assert device_variables([t4])["CUDA_VISIBLE_DEVICES"] == t4.uuid
    lease = here.lease(t4)
    assert lease is not None
    busy = {device.index: device.busy for device in here.devices()}
    assert busy[0].startswith("leased to ")
    assert busy[1] == ""


def test_each_mig_part_holds_a_model_of_its_own(machine: Callable[..., Machine]) -> None:
    parts = [Part(gpu_instance=7 + number) for number in range(2)]
    here = machine(Driver([card("H100", mig=(1, 1), parts=parts)]))
    first, second = here.devices()
    assert used(here.plan(Policy())) == [first.label]
    assert all(here.lease(device) for device in (first, second))
    shown = [device_variables([device])["CUDA_VISIBLE_DEVICES"] for device in (first, second)]
    assert shown == [first.uuid, second.uuid]
    assert isinstance(here.plan(Policy()), Infeasible)


def test_a_gpu_with_a_desktop_is_planned_and_leased_by_the_same_rule(machine: Callable[..., Machine]) -> None:
    here = machine(Driver([card("A10G", graphics=[(DESKTOP_PID, 400)], used_mib=400)]))
    (device,) = here.devices()
    alone = here.plan(Policy())
    assert isinstance(alone, Infeasible)
    assert [refused.reason for refused in alone.refused] == [device.busy]
    assert f"in use by pid {DESKTOP_PID}" in device.busy
    with pytest.raises(ServeError, match=f"in use by pid {DESKTOP_PID}"):
        here.lease(device)

    share = lease_share(of_mode("conservative"))
    assert share == 0.5
    assert used(here.plan(Policy(share=share, reserve=0.5))) == [device.label]
    assert here.lease(device, "conservative") is not None
    beside = here.plan(Policy(share=lease_share(of_mode("default")), reserve=0.3))
    assert isinstance(beside, Infeasible)
    assert "50% of its memory can be leased, and the mode asks for 70%" in beside.refused[0].reason


def test_a_gpu_that_health_gives_no_work_holds_no_model(machine: Callable[..., Machine]) -> None:
    here = machine(Driver([card("A100", remapped=(0, 1, 1, 1)), card("A100", bus=5)]))
    bad, good = here.devices()
    assert bad.unavailable
    assert used(here.plan(Policy())) == [good.label]
    with pytest.raises(ServeError, match="no lease of the GPU"):
        here.lease(bad)


def test_a_gpu_that_the_environment_hides_holds_no_model(machine: Callable[..., Machine]) -> None:
    here = machine(Driver(box("A100", 2)))
    here.environ["CUDA_VISIBLE_DEVICES"] = "1"
    assert [device.unavailable for device in here.devices()] == ["the environment hides it", ""]
