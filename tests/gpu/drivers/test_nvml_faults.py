"""The driver failing in every way, and NVML through the life of a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pynvml
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from paddock.gpu import inventory as detect
from paddock.gpu import serialization
from paddock.gpu.drivers import nvml
from paddock.gpu.drivers.base import DriverUnavailable
from paddock.gpu.drivers.nvml import Nvml
from paddock.gpu.errors import GpuError
from paddock.gpu.model import Inventory
from tests.support.explore import examples
from tests.support.nvml import PROFILES, Driver, Fault, Part, box, card, installed

Install = Callable[[str | Driver], Driver]
CODES = [*range(1, 31), 77, 999]
TELLING = {1, 2, 3, 4, 6, 9, 12, 13, 15, 16, 18, 27, 999}
"""Codes that are read differently; the others are as good as 999."""


def check_consistent(inventory: Inventory) -> None:
    """Check the invariants of an inventory, whatever the driver did."""
    assert inventory.gpus or inventory.reason
    assert not inventory.reason or inventory.reason.endswith((".", ")")), inventory.reason
    for gpu in inventory.gpus:
        assert (gpu.state == "ok") == (gpu.reason is None)
        assert gpu.state != "ok" or gpu.uuid


def small() -> Driver:
    """Two cards, the first of which answers to every call, with as little to read as may be."""
    divided = card("H100", bus=9, links=1, mig=(1, 1), parts=[Part(7, processes=((1, 2),))])
    return Driver([divided, card("H100", links=1, processes=[(1, 2)])])


def functions() -> list[str]:
    with installed(small()) as fake:
        detect.inventory(processes=True, topology=True)
        return sorted({*fake.calls, "nvmlDeviceGetPowerUsage", "nvmlDeviceGetNvLinkState"})


@pytest.mark.parametrize(
    "code", [pytest.param(code, marks=() if code in TELLING else pytest.mark.explore) for code in CODES]
)
def test_every_call_failing_in_turn_leaves_an_inventory(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    for name in functions():
        with installed(small()) as fake:
            of_a_gpu = name.startswith("nvmlDevice") and name != "nvmlDeviceGetCount_v2"
            (fake.cards[0].faults if of_a_gpu else fake.faults)[name] = Fault(code)
            inventory = detect.inventory(processes=True, topology=True)
            check_consistent(inventory)
            assert not inventory.gpus or code in (1, 9, 12, 18) or inventory.gpus[1].state == "ok", name


@examples(40, 500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    profile=st.sampled_from(sorted(PROFILES)),
    faults=st.dictionaries(
        st.sampled_from(functions()), st.builds(Fault, st.sampled_from(CODES), st.integers(0, 20)), max_size=6
    ),
)
def test_any_calls_failing_on_any_machine_leave_an_inventory(
    profile: str, faults: dict[str, Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with installed(PROFILES[profile]()) as fake:
        fake.faults.update(faults)
        inventory = detect.inventory(processes=True, topology=True)
        check_consistent(inventory)
        assert serialization.loads(serialization.dumps(inventory)) == inventory
        with suppress(GpuError):
            sampler = detect.sampler()
            check_consistent(sampler.read())
            check_consistent(sampler.read())


def test_a_gpu_lost_during_a_reading_affects_no_other() -> None:
    with installed(small()) as fake:
        detect.inventory(processes=True, topology=True)
        most = fake.calls.total()
    states = set()
    for moment in range(most):
        with installed(small()) as fake:
            fake.cards[0].lost_after = moment
            inventory = detect.inventory(processes=True, topology=True)
            check_consistent(inventory)
            assert inventory.gpus[1].state == "ok"
            states.add((inventory.gpus[0].state, inventory.gpus[0].uuid is None))
    assert states == {("lost", True), ("lost", False), ("ok", False)}


@pytest.mark.parametrize(("name", "count"), [("none", 0), ("h100", 1), ("8xh100", 8), ("16xa100", 16)])
def test_machines_of_all_sizes(driver: Install, name: str, count: int) -> None:
    driver(name)
    inventory = detect.inventory(topology=True)
    check_consistent(inventory)
    assert (len(inventory.gpus), len(inventory.pairs)) == (count, count * (count - 1) // 2)
    assert bool(inventory.reason) == (count == 0)


def test_a_driver_that_is_still_starting_is_waited_for(driver: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    driver(Driver([card("T4", faults={"nvmlDeviceGetName": Fault(27, times=1)})]))
    assert Nvml().read().gpus[0].name == "Tesla T4"


def test_a_failure_of_all_gpus_is_reported_once(driver: Install) -> None:
    fake = driver("8xh100")
    fake.faults["nvmlDeviceGetComputeMode"] = Fault(4)
    fake.cards[1].faults["nvmlDeviceGetVbiosVersion"] = Fault(10)
    assert set(Nvml().read().notes) == {
        "GPU 0, 1, 2, 3, 4, 5, 6, 7: nvmlDeviceGetComputeMode did not answer: no permission; root may read it",
        "GPU 1: nvmlDeviceGetVbiosVersion did not answer: Timeout (10)",
    }


def test_nvml_is_started_once_and_another_user_of_it_keeps_it(driver: Install) -> None:
    fake = driver("h100")
    pynvml.nvmlInit()
    for _ in range(3):
        Nvml().read()
    assert fake.calls["nvmlInitWithFlags"] == 2
    nvml.close()
    assert pynvml._nvmlLib_refcount == 1
    assert fake.calls["nvmlShutdown"] == 1
    Nvml().read()
    assert fake.calls["nvmlInitWithFlags"] == 3


def test_a_start_that_fails_is_tried_again_by_the_next_reading(driver: Install) -> None:
    fake = driver("h100")
    fake.faults["nvmlInitWithFlags"] = Fault(9, times=1)
    with pytest.raises(DriverUnavailable):
        Nvml().read()
    assert Nvml().read().gpus[0].state == "ok"


def test_a_forked_child_starts_nvml_for_itself(root: Path) -> None:
    script = """
import os
from paddock.gpu.drivers.nvml import Nvml
from tests.support.nvml import PROFILES, installed
with installed(PROFILES["h100"]()) as driver:
    before = Nvml().read()
    child = os.fork()
    if not child:
        same = Nvml().read() == before
        starts, stops = driver.calls["nvmlInitWithFlags"], driver.calls["nvmlShutdown"]
        os._exit(0 if (same, starts, stops) == (True, 2, 0) else 1)
    print(os.waitpid(child, 0)[1], Nvml().read() == before, driver.calls["nvmlInitWithFlags"])
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert result.stdout.split() == ["0", "True", "1"], result.stderr


def test_a_program_reads_the_same_from_a_compiled_driver_library(nvml_library: Path, root: Path) -> None:
    settings = {"FAKE_NVML_COUNT": "8", "FAKE_NVML_LOST": "2", "FAKE_NVML_PROCESSES": f"0:{os.getpid()}:2048,0:1:1"}
    script = (
        "from paddock.gpu import inventory as detect, serialization as document;"
        "print(document.dumps(detect.inventory(processes=True, topology=True)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=root,
        check=True,
        env={"LD_LIBRARY_PATH": str(nvml_library), **settings},
    )
    inventory = serialization.loads(result.stdout)
    cards = box("H100", 8, used_mib=0)
    cards[2].lost = True
    cards[0].utilisation, cards[0].used_mib = (87, 41), 2049
    with installed(Driver(cards)):
        expected = detect.inventory(topology=True)
    assert [gpu.state for gpu in inventory.gpus].count("lost") == 1
    assert {pair.nvlinks for pair in inventory.pairs} == {18}
    for actual, reference in zip(inventory.gpus, expected.gpus, strict=True):
        alike = ("uuid", "name", "memory", "power", "clocks", "temperature", "utilisation", "ecc", "pcie", "nvlinks")
        assert [getattr(actual, name) for name in alike] == [getattr(reference, name) for name in alike]
    assert {process.pid: process.memory for process in inventory.gpus[0].processes or ()} == {os.getpid(): 2048, 1: 1}
    assert json.loads(result.stdout)["backend"] == "nvml"
