"""Machines with GPUs, made by hand for what decides on an inventory and reads none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from paddock.gpu.host.processes import Owner
from paddock.gpu.leases.lease import Lease, LeasedDevice
from paddock.gpu.model import Closeness, Gpu, Inventory, Machine, Memory, Mig, MigDevice, Pair, Process, Utilisation

NAMESPACE = "pid:[4026531836]"
BOOT = "5f0c3c8e-0000-0000-0000-000000000001"

MODELS: dict[str, dict[str, Any]] = {
    "h100": {"name": "NVIDIA H100 80GB HBM3", "pci_device_id": "10de:2330", "total": 81559, "cc": "9.0"},
    "a100": {"name": "NVIDIA A100-SXM4-40GB", "pci_device_id": "10de:20b0", "total": 40960, "cc": "8.0"},
    "a10g": {"name": "NVIDIA A10G", "pci_device_id": "10de:2237", "total": 23028, "cc": "8.6"},
    "t4": {"name": "Tesla T4", "pci_device_id": "10de:1eb8", "total": 15360, "cc": "7.5"},
    "odd": {"name": "NVIDIA Odd 9000", "pci_device_id": "10de:ffff", "total": 49152, "cc": "8.6"},
}


def gpu(index: int, model: str = "h100", *, used: int = 0, **changes: Any) -> Gpu:
    about = MODELS[model]
    reserved = 500
    device = Gpu(
        index,
        f"GPU-{index:08d}-aaaa",
        about["name"],
        "nvidia",
        pci_address=f"0000:{index + 4:02x}:00.0",
        pci_device_id=about["pci_device_id"],
        compute_capability=about["cc"],
        memory=Memory(about["total"], used, about["total"] - reserved - used, reserved),
        utilisation=Utilisation(0, 0),
        processes=(),
    )
    return replace(device, **changes)


def box(gpus: Iterable[Gpu], pairs: Iterable[Pair] = (), **machine: Any) -> Inventory:
    return Inventory("2026-11-20T10:00:00Z", Machine("box", "linux", "x86_64", **machine), "nvml", (*gpus,), (*pairs,))


def h100s(count: int) -> Inventory:
    return box(map(gpu, range(count)))


def pair(a: int, b: int, closeness: Closeness | None = "system", nvlinks: int = 0) -> Pair:
    return Pair(min(a, b), max(a, b), closeness, nvlinks)


def divided(index: int, parts: int = 7, profile: str = "1g.10gb", mib: int = 9856) -> Gpu:
    """Return a GPU in MIG parts."""
    devices = tuple(
        MigDevice(f"MIG-{index}-{part}", profile, part + 7, 0, Memory(mib, 12, mib - 12)) for part in range(parts)
    )
    return gpu(index, mig=Mig(True, True, devices))


def process(pid: int, memory: int | None = 400, **more: Any) -> Process:
    return Process(pid, more.pop("kind", "compute"), memory, **more)


def lease(*uuids: str, share: float | None = None, id: str = "aaaa0001", pid: int = 4242) -> Lease:
    owner = Owner(pid, 1, NAMESPACE)
    devices = tuple(LeasedDevice(uuid, uuid) for uuid in uuids)
    return Lease(id, devices, share, (owner,), BOOT, "ci", "python train.py", "2026-11-20T10:00:00Z", None, 10.0)
