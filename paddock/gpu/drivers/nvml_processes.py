"""Processes on an NVIDIA GPU, and its MIG devices."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from paddock.gpu.drivers.nvml_calls import Calls, NvmlDevice
from paddock.gpu.host.machine import owner, sees_host_processes
from paddock.gpu.model import Memory, Mig, MigDevice, Process

_MIB = 1 << 20
_KINDS: tuple[tuple[Literal["compute", "mps", "graphics"], str], ...] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
)

Names = Callable[[int], tuple[str | None, str | None]]
"""Maps a pid of the host to the process's name and user."""


def names(root: Path) -> Names:
    """Return a lookup in /proc below `root`; an empty one where the pids there differ from the host's."""
    if not sees_host_processes(root):
        return lambda pid: (None, None)
    return lambda pid: owner(pid, root)


def read_processes(calls: Calls, device: NvmlDevice, name_process: Names) -> tuple[Process, ...] | None:
    """Return each process once, with the first kind that applies: compute, MPS, graphics."""
    processes: dict[tuple[int, str | None], Process] = {}
    any_answer = False
    targets: list[tuple[Any, str | None]] = [(handle, part.uuid) for handle, part in device.parts] or [(None, None)]
    for handle, part in targets:
        for kind, name in _KINDS:
            records = calls.first(device, (f"{name}_v3",), (f"{name}_v2",), handle=handle)
            if records is None:
                continue
            any_answer = True
            for record in records:
                memory = None if record.usedGpuMemory is None else record.usedGpuMemory // _MIB
                if (record.pid, part) not in processes:
                    processes[record.pid, part] = Process(record.pid, kind, memory, *name_process(record.pid), part)
    return tuple(processes.values()) if any_answer else None


def read_mig(calls: Calls, device: NvmlDevice) -> Mig | None:
    """Read the MIG mode and devices, which can change at any time. Their handles are stored in the device."""
    device.parts = []
    mode = calls.query(device, "nvmlDeviceGetMigMode")
    if mode is None:
        return None
    enabled, pending = map(bool, mode)
    if enabled:
        whole = calls.query(device, "nvmlDeviceGetMemoryInfo")
        for number in range(calls.query(device, "nvmlDeviceGetMaxMigDeviceCount") or 0):
            # Numbers can have gaps: a device in the middle may have been destroyed.
            handle = calls.query(device, "nvmlDeviceGetMigDeviceHandleByIndex", number)
            if handle and (part := _part(calls, device, handle, whole)):
                device.parts.append((handle, part))
    return Mig(enabled, pending, tuple(part for _, part in device.parts))


def _part(calls: Calls, device: NvmlDevice, handle: Any, whole: Any) -> MigDevice | None:
    uuid = calls.query(device, "nvmlDeviceGetUUID", handle=handle)
    gpu_instance = calls.query(device, "nvmlDeviceGetGpuInstanceId", handle=handle)
    compute_instance = calls.query(device, "nvmlDeviceGetComputeInstanceId", handle=handle)
    if uuid is None or gpu_instance is None or compute_instance is None:
        return None
    attributes = calls.query(device, "nvmlDeviceGetAttributes_v2", handle=handle)
    memory = calls.query(device, "nvmlDeviceGetMemoryInfo", handle=handle)
    return MigDevice(
        uuid,
        profile(attributes, whole.total) if attributes and whole else "unknown",
        gpu_instance,
        compute_instance,
        memory and Memory(memory.total // _MIB, memory.used // _MIB, memory.free // _MIB),
    )


def profile(attributes: Any, total: int) -> str:
    """Return the profile's name from the attributes, by NVIDIA's rule (go-nvlib): eighths of a GPU's whole GB."""
    eighths = math.ceil(attributes.memorySizeMB * _MIB / total * 8)
    gigabytes = math.floor(eighths / 8 * math.ceil(total / (1 << 30)) + 0.5)
    compute, slices = attributes.computeInstanceSliceCount, attributes.gpuInstanceSliceCount
    return f"{'' if compute == slices else f'{compute}c.'}{slices}g.{gigabytes}gb"
