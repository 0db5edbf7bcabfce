"""Who uses a GPU, and the parts that MIG makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from paddock.gpu.drivers.nvml_calls import Calls, Device
from paddock.gpu.host.machine import owner, sees_host_processes
from paddock.gpu.model import Memory, Mig, MigDevice, Process

_MIB = 1 << 20
_KINDS: tuple[tuple[Literal["compute", "mps", "graphics"], str], ...] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
)

Names = Callable[[int], tuple[str | None, str | None]]
"""The name and the user of the process that the host calls by this pid."""


def names(root: Path) -> Names:
    """Reads /proc below `root`, unless the pids there are not the host's, which are what the driver tells."""
    if not sees_host_processes(root):
        return lambda pid: (None, None)
    return lambda pid: owner(pid, root)


def running_on(calls: Calls, device: Device, who: Names) -> tuple[Process, ...] | None:
    """Each process once, as what it is first of: compute, MPS, graphics."""
    found: dict[tuple[int, str | None], Process] = {}
    answered = False
    targets: list[tuple[Any, str | None]] = [(handle, part.uuid) for handle, part in device.parts] or [(None, None)]
    for handle, part in targets:
        for kind, name in _KINDS:
            told = calls.first(device, (f"{name}_v3",), (f"{name}_v2",), handle=handle)
            if told is None:
                continue
            answered = True
            for one in told:
                memory = None if one.usedGpuMemory is None else one.usedGpuMemory // _MIB
                if (one.pid, part) not in found:
                    found[one.pid, part] = Process(one.pid, kind, memory, *who(one.pid), part)
    return tuple(found.values()) if answered else None


def mig(calls: Calls, device: Device) -> Mig | None:
    """Reads the parts anew: anybody may have made others since. Their handles are kept in the device."""
    device.parts = []
    mode = calls.ask(device, "nvmlDeviceGetMigMode")
    if mode is None:
        return None
    enabled, pending = map(bool, mode)
    if enabled:
        whole = calls.ask(device, "nvmlDeviceGetMemoryInfo")
        for number in range(calls.ask(device, "nvmlDeviceGetMaxMigDeviceCount") or 0):
            # Not the end where there is none of this number: one in the middle may have been destroyed.
            handle = calls.ask(device, "nvmlDeviceGetMigDeviceHandleByIndex", number)
            if handle and (part := _part(calls, device, handle, whole)):
                device.parts.append((handle, part))
    return Mig(enabled, pending, tuple(part for _, part in device.parts))


def _part(calls: Calls, device: Device, handle: Any, whole: Any) -> MigDevice | None:
    uuid = calls.ask(device, "nvmlDeviceGetUUID", handle=handle)
    gpu_instance = calls.ask(device, "nvmlDeviceGetGpuInstanceId", handle=handle)
    compute_instance = calls.ask(device, "nvmlDeviceGetComputeInstanceId", handle=handle)
    if uuid is None or gpu_instance is None or compute_instance is None:
        return None
    has = calls.ask(device, "nvmlDeviceGetAttributes_v2", handle=handle)
    memory = calls.ask(device, "nvmlDeviceGetMemoryInfo", handle=handle)
    return MigDevice(
        uuid,
        profile(has, whole.total) if has and whole else "unknown",
        gpu_instance,
        compute_instance,
        memory and Memory(memory.total // _MIB, memory.used // _MIB, memory.free // _MIB),
    )


def profile(has: Any, total: int) -> str:
    """The profile's name from a part's attributes, by NVIDIA's own rule (go-nvlib): eighths of a GPU's whole GB."""
    eighths = math.ceil(has.memorySizeMB * _MIB / total * 8)
    gigabytes = math.floor(eighths / 8 * math.ceil(total / (1 << 30)) + 0.5)
    compute, slices = has.computeInstanceSliceCount, has.gpuInstanceSliceCount
    return f"{'' if compute == slices else f'{compute}c.'}{slices}g.{gigabytes}gb"
