"""NVIDIA_, CUDA_, ROCR_ and HIP_VISIBLE_DEVICES, in every form that their makers accept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddock.gpu.host.visibility import visible
from paddock.gpu.model import Inventory
from tests.support.boxes import box, divided, gpu, h100s

FOUR = h100s(4)
PARTS = box([gpu(0), divided(1, 2)])
AMD = box([replace(amd_gpu, vendor="amd") for amd_gpu in h100s(4).gpus])


def visible_indexes(machine: Inventory, **environ: str) -> str | None:
    """Indexes of the GPUs that may be used, and UUIDs of parts; None where nothing was narrowed."""
    selection = visible(machine, environ)
    if selection is None:
        return None
    whole = [str(gpu.index) for gpu in machine.gpus if gpu.uuid and selection.shows(gpu.uuid, gpu.uuid)]
    return " ".join([*whole, *sorted(uuid for uuid in selection.uuids if uuid.startswith("MIG-"))])


@pytest.mark.parametrize(("value", "indexes"), [
    ("all", None),
    ("", None),
    ("/var/run/nvidia-container-devices", None),
    ("none", ""),
    ("void", ""),
    ("1,3", "1 3"),
    ("9,1", "1"),
    ("GPU-00000002-aaaa", "2"),
    ("GPU-00000002-aaaa, 0", "0 2"),
])  # fmt: skip
def test_as_the_container_toolkit_reads_it(value: str, indexes: str | None) -> None:
    assert visible_indexes(FOUR, NVIDIA_VISIBLE_DEVICES=value) == indexes


@pytest.mark.parametrize(("value", "indexes"), [
    ("", ""),
    ("-1", ""),
    ("NoDevFiles", ""),
    ("0,2", "0 2"),
    ("2,0,2", "0 2"),
    ("0,2,-1,1", "0 2"),
    ("0,7,1", "0"),
    ("GPU-00000003", "3"),
    ("gpu-00000003", ""),
    ("GPU-0000000", ""),
    ("nonsense", ""),
])  # fmt: skip
def test_as_cuda_reads_it(value: str, indexes: str) -> None:
    assert visible_indexes(FOUR, CUDA_VISIBLE_DEVICES=value) == indexes


@pytest.mark.parametrize("environ", [
    {"CUDA_VISIBLE_DEVICES": "MIG-1-1"},
    {"CUDA_VISIBLE_DEVICES": "MIG-GPU-00000001-aaaa/8/0"},
    {"NVIDIA_VISIBLE_DEVICES": "1:1"},
    {"NVIDIA_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "MIG-1-1"},
    {"NVIDIA_VISIBLE_DEVICES": "MIG-1-1,0", "CUDA_VISIBLE_DEVICES": "GPU-00000001"},
])  # fmt: skip
def test_parts_of_a_gpu(environ: dict[str, str]) -> None:
    selection = visible(PARTS, environ)
    assert selection.shows("MIG-1-1", "GPU-00000001-aaaa")
    assert not selection.shows("MIG-1-0", "GPU-00000001-aaaa")
    assert not selection.shows("GPU-00000000-aaaa", "GPU-00000000-aaaa")


def test_a_gpu_stands_for_its_parts() -> None:
    selection = visible(PARTS, {"CUDA_VISIBLE_DEVICES": "1"})
    assert selection.shows("MIG-1-0", "GPU-00000001-aaaa")


def test_the_variables_narrow_each_other_and_each_is_said() -> None:
    environ = {"NVIDIA_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "1,2"}
    selection = visible(FOUR, environ)
    assert selection.uuids == {"GPU-00000001-aaaa"}
    assert selection.notes == ("NVIDIA_VISIBLE_DEVICES=0,1 leaves 2 GPUs.", "CUDA_VISIBLE_DEVICES=1,2 leaves 2 GPUs.")


def test_what_is_not_here_is_said() -> None:
    assert "(9 is not here)" in str(visible(FOUR, {"NVIDIA_VISIBLE_DEVICES": "9,1"}))
    assert "(it ends at 7, which is not here)" in str(visible(FOUR, {"CUDA_VISIBLE_DEVICES": "0,7,1"}))


def test_in_a_container_the_runtime_has_acted_already() -> None:
    """Its GPUs 2 and 3 are 0 and 1 inside; a device plugin leaves `void` behind where it gave GPUs another way."""
    inside = box(h100s(2).gpus, container=True)
    for value in ("2,3", "void"):
        assert visible(inside, {"NVIDIA_VISIBLE_DEVICES": value}) is None
    assert visible_indexes(inside, NVIDIA_VISIBLE_DEVICES="2,3", CUDA_VISIBLE_DEVICES="1") == "1"


def test_indexes_among_different_models_follow_the_bus_order() -> None:
    mixed = box([gpu(0, "t4"), gpu(1, "h100")])
    assert "the fastest first" in str(visible(mixed, {"CUDA_VISIBLE_DEVICES": "0"}))
    for more in ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES": "GPU-00000000"}):
        assert "fastest" not in str(visible(mixed, {"CUDA_VISIBLE_DEVICES": "0", **more}))


@pytest.mark.parametrize(("environ", "indexes"), [
    ({"ROCR_VISIBLE_DEVICES": "1,GPU-00000003-aaaa"}, "1 3"),
    ({"HIP_VISIBLE_DEVICES": "2"}, "2"),
    ({"CUDA_VISIBLE_DEVICES": "2"}, "2"),
    ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "0"}, "3"),
    ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, "1"),
    ({"NVIDIA_VISIBLE_DEVICES": "none"}, None),
])  # fmt: skip
def test_amd_s_own(environ: dict[str, str], indexes: str | None) -> None:
    assert visible_indexes(AMD, **environ) == indexes


def test_a_lost_gpu_keeps_its_number() -> None:
    lost = replace(gpu(1), state="lost", uuid=None, pci_address=None)
    assert visible_indexes(box([gpu(0), lost, gpu(2)]), NVIDIA_VISIBLE_DEVICES="2") == "2"
