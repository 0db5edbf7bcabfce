"""The devices of a benchmark: visible, asked for and free; on a made-up driver."""

from __future__ import annotations

import os

import pytest

from paddock.bench.errors import BenchError, BenchInputError
from paddock.bench.runner import devices
from paddock.bench.runner.run import default_engine
from paddock.gpu.inventory import inventory
from paddock.gpu.leases.allocation import obtain
from paddock.gpu.leases.manager import Leases
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Gpu
from paddock.modes.admission import Room
from tests.support.boxes import box as machine
from tests.support.boxes import gpu
from tests.support.nvml import Driver, Part, box, card, installed


@pytest.fixture(autouse=True)
def _all_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def leased(chosen: tuple[str, ...] = ()) -> list[int]:
    """Return the indexes of the GPUs that a benchmark gets."""
    here = devices.candidates(inventory(processes=True), chosen, os.environ)
    with devices.leased(here, 60.0, os.environ) as taken:
        return [device.gpu.index for device in taken]


def test_gpus_that_the_environment_hides_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with installed(Driver(box("H100", 4))):
        assert leased()[0] in (2, 3)
        with pytest.raises(BenchInputError, match="no GPU '0' here: the environment hides it"):
            leased(("0",))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with installed(Driver(box("H100", 4))):
        assert leased() == []


def test_a_gpu_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = box("H100", 2)
    cards[0].processes = [(4711, 500)]
    with installed(Driver(cards)):
        assert leased() == [1]
        grant = obtain(Leases(), Request(uuids=(inventory().gpus[1].uuid or "",)), owners=(), ttl=60, command="other")
        with pytest.raises(BenchError, match=r"(?s)GPU 0 .*in use by pid 4711.*GPU 1 .*other.*fix: choose others"):
            leased()
        Leases().release(grant.lease.id)


def test_only_gpus_that_are_asked_for_are_taken() -> None:
    with installed(Driver(box("H100", 4))):
        uuid = inventory().gpus[3].uuid or ""
        assert leased(("2",)) == [2]
        assert leased((uuid,)) == [3]
        assert leased(("1", uuid))[0] in (1, 3)
        with pytest.raises(BenchInputError, match=r"no GPU '7' here\n.*\n.*choose of 0 "):
            leased(("7",))
    with installed(Driver([])), pytest.raises(BenchInputError, match="without --gpus the CPU is measured"):
        leased(("0",))


def test_parts_of_a_gpu_are_devices_of_their_own() -> None:
    divided = card("H100", bus=4, numa=0)
    divided.mig = (1, 1)
    divided.parts = [Part(7), Part(8)]
    with installed(Driver([divided])):
        here = devices.candidates(inventory(processes=True), ())
        assert [device.name for device in here] == ["NVIDIA H100 80GB HBM3 MIG 1g.10gb"] * 2
        assert len({device.uuid for device in here}) == 2
        assert all(device.uuid.startswith("MIG-") for device in here)
        room = devices.room(here)
        assert room.total < 20 * 2**30, "its own memory, not the GPU's"
        with devices.leased(here, 60.0, os.environ) as (chosen,):
            assert chosen in here
        assert leased((here[1].uuid,)) == [0]


@pytest.mark.parametrize(("gpus", "source", "environ", "engine"), [
    ([gpu(0)], "", {}, "torch"),
    ([gpu(0)], "folder", {}, "torch"),
    ([gpu(0)], "model.gguf", {}, "llama.cpp"),
    ([gpu(0)], "", {"CUDA_VISIBLE_DEVICES": ""}, "llama.cpp"),
    ([gpu(0, vendor="amd")], "", {}, "torch"),
    ([gpu(0, vendor="apple")], "", {}, "llama.cpp"),
    ([gpu(0, state="lost")], "", {}, "llama.cpp"),
    ([], "", {}, "llama.cpp"),
])  # fmt: skip
def test_the_engine_is_the_one_of_the_device(
    gpus: list[Gpu], source: str, environ: dict[str, str], engine: str
) -> None:
    assert default_engine(machine(gpus), source, environ=environ) == engine


def test_unknown_memory_refuses_nothing() -> None:
    assert devices.room([]).total > 0
    with installed(Driver(box("H100", 2))):
        here = devices.candidates(inventory(), ())
    assert devices.room(here) == Room(here[0].room.total, here[0].room.free)  # type: ignore[union-attr]
