"""Agents: devices from inventories and files, and the diagnosis of a backend that does not work."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from paddock.gpu.leases.eligibility import SelectionContext
from paddock.gpu.leases.manager import Leases
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Driver, Gpu, Inventory, Machine, Memory
from paddock.serve.agents.devices_file import read_devices
from paddock.serve.agents.diagnosis import EngineFacts, broken, diagnose
from paddock.serve.agents.inventory_devices import inventory_devices
from paddock.serve.agents.this_machine import engine_facts, this_machine
from paddock.serve.errors import ServeInputError
from paddock.serve.placement.device import Backend
from tests.support.boxes import box, divided, gpu, lease
from tests.support.gpu_machines import NO_GPU, machines

FOR_CUDA = EngineFacts("2026.10", ("cuda",))
FOR_CPU = EngineFacts("2026.10")
T4 = replace(box([gpu(0, "t4")]), driver=Driver("580.95.05", "13.0"))
MAC = Inventory(
    "2026-11-20T10:00:00Z",
    Machine("mac", "macos", "arm64"),
    "apple",
    (Gpu(0, "APPLE-1-0", "Apple M4 Max", "apple", memory=Memory(36864, 1000, 35864), unified_memory=True),),
)
FOR_METAL = EngineFacts("2026.10", ("metal",))


def test_a_recorded_machine_becomes_devices_with_bandwidth_and_missing_formats(tmp_path: Path) -> None:
    recorded = machines(tmp_path)
    t4, a10g = inventory_devices(recorded["t4-a10g"])
    assert (t4.backend, t4.bandwidth_gbs, t4.lacks) == ("cuda", 320, ("bf16",))
    assert (a10g.memory_mib, a10g.bandwidth_gbs, a10g.lacks) == (23028, 600, ())
    assert {device.backend for device in inventory_devices(recorded["2-mi300x"])} == {"rocm"}
    assert [d.label for d in inventory_devices(recorded["one-lost"]) if d.unavailable == "lost: GPU is lost"] == [
        "box/cuda:2"
    ]
    assert inventory_devices(MAC)[0].backend == "metal"


def test_leased_gpus_and_parts_of_gpus_are_busy() -> None:
    uuids = [str(gpu(index).uuid) for index in range(2)]
    first, second = inventory_devices(box([gpu(0), gpu(1)]), SelectionContext((lease(uuids[0]),)))
    assert first.busy.startswith("leased to ci")
    assert (first.share_left, second.busy, second.share_left) == (0, "", 1)
    parts = inventory_devices(box([divided(0, parts=3)]), SelectionContext((lease("MIG-0-1"),)))
    assert [(part.label, bool(part.busy), part.memory_mib) for part in parts] == [
        ("box/cuda:0.0", False, 9856), ("box/cuda:0.1", True, 9856), ("box/cuda:0.2", False, 9856),
    ]  # fmt: skip


def test_this_machine_leaves_out_what_its_leases_hold(tmp_path: Path) -> None:
    machine = box([gpu(0), gpu(1)])
    granted = Leases(tmp_path / "leases").take(Request(), lambda: machine, ttl=60, command="train")
    devices = this_machine(machine, {"PADDOCK_GPU_LEASES": str(tmp_path / "leases")})
    leased = [device.index for device in devices if "train" in device.busy]
    assert leased == [gpu.index for gpu in machine.gpus if gpu.uuid == granted.lease.devices[0].uuid]
    assert [device.backend for device in devices] == ["cuda", "cuda", "cpu"]


def test_memory_that_cannot_be_read_makes_a_gpu_unavailable() -> None:
    (device,) = inventory_devices(box([gpu(0, memory=None)]))
    assert (device.memory_mib, device.unavailable) == (None, "its memory could not be read")


@pytest.mark.parametrize(
    ("inventory", "engine", "backend", "link", "words"),
    [
        (T4, FOR_CUDA, None, None, ""),
        (MAC, FOR_METAL, None, None, ""),
        (NO_GPU, None, None, "driver", "This machine has no GPU"),
        (replace(T4, gpus=(replace(T4.gpus[0], state="lost", reason="off the bus"),)), None, None, "driver", "lost"),
        (T4, EngineFacts(), None, "engine", "llama.cpp is not installed"),
        (T4, EngineFacts(error="xllamacpp cannot be loaded: OSError"), None, "engine", "cannot be loaded"),
        (T4, FOR_CPU, None, "build", "llama.cpp here is built for the CPU alone"),
        (T4, EngineFacts("2026.10", ("rocm",)), None, "build", "is built for rocm"),
        (box([gpu(0), gpu(1)]), FOR_CUDA, None, "devices", "llama.cpp sees 1 of 2 GPUs"),
        (T4, FOR_CUDA, "metal", "machine", "Metal is there on macOS alone"),
        (MAC, FOR_METAL, "cuda", "machine", "macOS has no CUDA"),
        (replace(MAC, machine=Machine("mac", "macos", "x86_64")), None, None, "machine", "Intel Mac"),
        (MAC, FOR_CPU, None, "build", "llama.cpp sees no Metal device"),
        (T4, FOR_CUDA, "rocm", "driver", "do not support ROCm"),
        (NO_GPU, FOR_CPU, "cpu", None, ""),
    ],
)
def test_the_diagnosis_names_the_first_broken_link(
    inventory: Inventory, engine: EngineFacts | None, backend: Backend | None, link: str | None, words: str
) -> None:
    chain = diagnose(inventory, engine, backend)
    first = broken(chain)
    assert (first.name if first else None) == link
    if first:
        assert chain[-1] == first
        assert words in first.evidence


def test_a_probe_in_another_process_says_what_llama_cpp_is_installed() -> None:
    installed = metadata.version("xllamacpp") if find_spec("xllamacpp") else None
    assert engine_facts() == EngineFacts(installed)


def test_a_python_that_is_not_there_is_said_and_not_raised(tmp_path: Path) -> None:
    assert "did not answer" in engine_facts(str(tmp_path / "python")).error


def test_a_file_of_devices_takes_facts_from_the_catalogue(tmp_path: Path) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text("devices: [{agent: box, backend: cuda, index: 0, name: t4, memory_mib: 15360}]\n")
    (device,) = read_devices(file)
    assert (device.free_mib, device.bandwidth_gbs, device.lacks) == (15360, 320, ("bf16",))


ENTRY = "{agent: box, backend: cuda, index: 0, memory_mib: 15360}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "devices is missing"),
        ("[1", "expected: a file of devices, such as"),
        ("devices: []", "devices: it is empty"),
        ("devices: [{agent: box, backend: cude, index: 0, memory_mib: 1}]", 'did you mean "cuda"?'),
        ("devices: [{agent: box, backend: cuda, index: 0, memory_mib: 0}]", "memory_mib: 0 is too small"),
        ("devices: [{agent: box, backend: cuda, index: -1, memory_mib: 1}]", "index: -1 is too small"),
        ("devices: [{agent: box, backend: cuda, index: 0, memory_mib: 99999999999}]", "is too large"),
        ("devices: [{agent: box, backend: cuda, index: 0, memory: 1}]", 'did you mean "memory_mib"?'),
        (f"devices: [{ENTRY}, {ENTRY}]", "devices[1].index: box/cuda:0 is also devices[0]"),
        (f"devices: [{ENTRY[:-1]}, free_mib: 20000}}]", "20000 MiB are free of 15360"),
        (f"devices: [{ENTRY[:-1]}, bandwidth_gbs: .inf}}]", "not JSON compliant"),
        (f"device: [{ENTRY}]", 'did you mean "devices"?'),
    ],
)
def test_a_wrong_file_of_devices_is_refused_with_its_key(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text(text)
    with pytest.raises(ServeInputError) as refusal:
        read_devices(file)
    assert words in str(refusal.value)
    assert str(refusal.value).startswith(str(file))
    assert "expected: " in str(refusal.value)


def test_no_part_of_a_prohibited_gpu_holds_a_model() -> None:
    parts = inventory_devices(box([replace(divided(0, parts=2), compute_mode="prohibited")]))
    assert {part.unavailable for part in parts} == {"its compute mode is prohibited"}
