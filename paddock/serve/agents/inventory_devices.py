"""Devices of one machine, from its inventory: those that cannot hold a model say why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.leases.lease import Lease
from paddock.gpu.model import Gpu, Inventory, Memory, Vendor
from paddock.serve.placement.device import WITHOUT_BF16, Backend, Device

BACKEND_OF: Mapping[Vendor, Backend] = MappingProxyType({"nvidia": "cuda", "amd": "rocm", "apple": "metal"})
_BF16_FROM = 8
"""Compute capability of the first NVIDIA GPUs with bf16."""


def inventory_devices(inventory: Inventory, leases: tuple[Lease, ...] = ()) -> tuple[Device, ...]:
    """Return the devices of an inventory, those under a lease as unavailable. The agent has the machine's name."""
    return tuple(device for gpu in inventory.gpus for device in _devices(gpu, inventory.machine.name, leases))


def _devices(gpu: Gpu, agent: str, leases: tuple[Lease, ...]) -> Iterator[Device]:
    model = catalog_entry(gpu)
    whole = Device(
        agent,
        BACKEND_OF[gpu.vendor],
        gpu.index,
        *_memory(gpu.memory),
        gpu.name,
        model.bandwidth_gbs if model else None,
        lacks=WITHOUT_BF16 if _lacks_bf16(gpu) else (),
        unavailable=_unavailable(gpu, leases),
    )
    if gpu.state != "ok" or gpu.mig is None or not gpu.mig.enabled:
        yield whole
        return
    if not gpu.mig.devices:
        yield replace(whole, unavailable="in MIG mode without a part")
    for number, part in enumerate(gpu.mig.devices):
        leased = next((lease.claim for lease in leases if _holds(lease, part.uuid, gpu.uuid)), "")
        yield replace(
            whole,
            memory_mib=part.memory.total if part.memory else None,
            free_mib=part.memory.free if part.memory else None,
            name=f"{gpu.name or 'GPU'} MIG {part.profile}",
            bandwidth_gbs=None,
            part=number,
            unavailable=_refused(gpu) or leased or ("" if part.memory else "its memory could not be read"),
        )


def _memory(memory: Memory | None) -> tuple[int | None, int | None]:
    return (memory.total, memory.free) if memory else (None, None)


def _refused(gpu: Gpu) -> str:
    """Return why the GPU and its parts compute nothing; empty where they do."""
    if gpu.state != "ok":
        return f"{gpu.state}: {gpu.reason}" if gpu.reason else gpu.state
    return "its compute mode is prohibited" if gpu.compute_mode == "prohibited" else ""


def _unavailable(gpu: Gpu, leases: tuple[Lease, ...]) -> str:
    if refused := _refused(gpu):
        return refused
    for lease in leases:
        if any(device.gpu == gpu.uuid for device in lease.devices):
            return lease.claim
    return "" if gpu.memory else "its memory could not be read"


def _holds(lease: Lease, part: str, gpu: str | None) -> bool:
    return any(device.uuid in (part, gpu) for device in lease.devices)


def _lacks_bf16(gpu: Gpu) -> bool:
    if gpu.vendor != "nvidia":
        return False
    model = catalog_entry(gpu)
    if model is not None:
        return model.supports("bf16") is False
    major = (gpu.compute_capability or "").partition(".")[0]
    return major.isdecimal() and int(major) < _BF16_FROM
