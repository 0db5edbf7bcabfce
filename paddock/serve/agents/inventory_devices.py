"""Devices of one machine, from its inventory: those that cannot hold a model say why.

What holds a model is what a lease takes, so the rules are those of `paddock.gpu.leases`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.host.visibility import visibility_variables
from paddock.gpu.leases import eligibility
from paddock.gpu.leases.eligibility import SelectionContext
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Gpu, Inventory, Memory, Vendor
from paddock.serve.placement.device import WITHOUT_BF16, Backend, Device

BACKEND_OF: Mapping[Vendor, Backend] = MappingProxyType({"nvidia": "cuda", "amd": "rocm", "apple": "metal"})
_BF16_FROM = 8
"""Compute capability of the first NVIDIA GPUs with bf16."""
_STEPS = 100
"""Shares of a GPU are compared in hundredths."""


def inventory_devices(inventory: Inventory, context: SelectionContext | None = None) -> tuple[Device, ...]:
    """Return the devices of an inventory under the machine's name.

    `context` has the leases, processes and faults of this moment; without it those of a saved inventory do not count.
    """
    leasable = {device.uuid: device for device in eligibility.devices(inventory)[0]} if context else {}
    return tuple(
        _leasable(device, leasable.get(device.uuid or ""), context)
        for gpu in inventory.gpus
        for device in _devices(gpu, inventory.machine.name)
    )


def _devices(gpu: Gpu, agent: str) -> Iterator[Device]:
    model = catalog_entry(gpu)
    whole = Device(
        agent,
        BACKEND_OF[gpu.vendor],
        gpu.index,
        *_memory(gpu.memory),
        gpu.name,
        model.bandwidth_gbs if model else None,
        lacks=WITHOUT_BF16 if _lacks_bf16(gpu) else (),
        unavailable=_refused(gpu) or _unread(gpu.memory),
        uuid=gpu.uuid,
    )
    if gpu.state != "ok" or gpu.mig is None or not gpu.mig.enabled:
        yield whole
        return
    if not gpu.mig.devices:
        yield replace(whole, unavailable="in MIG mode without a part")
    for number, part in enumerate(gpu.mig.devices):
        total, free = _memory(part.memory)
        yield replace(
            whole,
            memory_mib=total,
            free_mib=free,
            name=f"{gpu.name or 'GPU'} MIG {part.profile}",
            bandwidth_gbs=None,
            part=number,
            unavailable=_refused(gpu) or _unread(part.memory),
            uuid=part.uuid,
        )


def _leasable(device: Device, candidate: eligibility.LeasableDevice | None, context: SelectionContext | None) -> Device:
    """Return the device with what keeps a lease from it now."""
    if context is None or device.unavailable:
        return device
    if candidate is None:
        return replace(device, unavailable="it has no UUID to know it by")
    alone = eligibility.refusal(candidate, Request(), context)
    if alone and not alone.transient:
        return replace(device, unavailable=alone.reason)
    return replace(device, busy=alone.reason if alone else "", share_left=_share_left(candidate, context))


def _share_left(candidate: eligibility.LeasableDevice, context: SelectionContext) -> float:
    """Return the largest share that can be leased now; 0 for none."""
    low, high = 0, _STEPS
    while low < high:
        middle = (low + high + 1) // 2
        refused = eligibility.refusal(candidate, Request(share=middle / _STEPS), context)
        low, high = (low, middle - 1) if refused else (middle, high)
    return low / _STEPS


def _memory(memory: Memory | None) -> tuple[int | None, int | None]:
    return (memory.total, memory.free) if memory else (None, None)


def _unread(memory: Memory | None) -> str:
    return "" if memory else "its memory could not be read"


def _refused(gpu: Gpu) -> str:
    """Return why the GPU and its parts compute nothing; empty where they do."""
    if gpu.state != "ok":
        return f"{gpu.state}: {gpu.reason}" if gpu.reason else gpu.state
    return "its compute mode is prohibited" if gpu.compute_mode == "prohibited" else ""


def _lacks_bf16(gpu: Gpu) -> bool:
    if gpu.vendor != "nvidia":
        return False
    model = catalog_entry(gpu)
    if model is not None:
        return model.supports("bf16") is False
    major = (gpu.compute_capability or "").partition(".")[0]
    return major.isdecimal() and int(major) < _BF16_FROM


_VENDORS: Mapping[Backend, Vendor] = MappingProxyType({"cuda": "nvidia", "rocm": "amd"})


def device_variables(devices: Sequence[Device]) -> dict[str, str]:
    """Return the variables that show those GPUs, or parts of one, and no other; none for what is not a driver's GPU.

    Devices of a file have no UUID: they are a rehearsal on the CPU.
    """
    vendor = _VENDORS.get(devices[0].backend)
    uuids = [device.uuid for device in devices if device.uuid]
    if vendor is None or not uuids:
        return {}
    return {name: value or "" for name, value in visibility_variables(vendor, uuids).items()}
