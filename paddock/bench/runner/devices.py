"""Devices of a benchmark: the GPUs, or parts of them, that are visible, free and asked for; else the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from paddock.bench.errors import BenchError, BenchInputError
from paddock.gpu.errors import GpuError
from paddock.gpu.host import resources
from paddock.gpu.host.visibility import TORCH_DEVICE, visible
from paddock.gpu.leases.allocation import obtain
from paddock.gpu.leases.manager import Leases, NoneFree
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Gpu, Inventory, MigDevice
from paddock.modes.admission import Room

_MIB = 1 << 20
_UNKNOWN = Room(2**62, 2**62)
"""Memory that nobody knows refuses nothing."""


@dataclass(frozen=True, slots=True)
class BenchDevice:
    """A GPU, or a MIG part of one."""

    uuid: str
    gpu: Gpu
    part: MigDevice | None = None

    @property
    def name(self) -> str:
        name = self.gpu.name or "GPU"
        return f"{name} MIG {self.part.profile}" if self.part else name

    @property
    def room(self) -> Room | None:
        """Its memory; None where it is not known."""
        memory = self.part.memory if self.part else self.gpu.memory
        return Room(memory.total * _MIB, memory.free * _MIB) if memory else None


def candidates(
    machine: Inventory, requested: Sequence[str], environ: Mapping[str, str] = os.environ
) -> list[BenchDevice]:
    """Return the devices that the environment shows, of those wanted: indexes, or the beginnings of UUIDs.

    Raises BenchInputError for one that is not here.
    """
    every = [device for gpu in machine.usable for device in _devices(gpu)]
    shown = visible(machine, environ)
    here = [device for device in every if shown is None or shown.shows(device.uuid, device.gpu.uuid or "")]
    if not requested:
        return here
    chosen = []
    for name in requested:
        fitting = [device for device in here if _is(device, name)]
        if not fitting:
            hidden = ": the environment hides it" if any(_is(device, name) for device in every) else ""
            there = ", ".join(f"{device.gpu.index} ({device.uuid})" for device in here)
            fix = f"choose of {there}" if there else "there are none to use; without --gpus the CPU is measured"
            raise BenchInputError(
                f"--gpus: there is no GPU {name!r} here{hidden}"
                f"\n    expected: indexes or UUIDs of this machine's GPUs or MIG parts\n    fix: {fix}"
            )
        chosen += fitting
    return list(dict.fromkeys(chosen))


@contextmanager
def leased(
    devices: Sequence[BenchDevice], seconds: float, environ: Mapping[str, str] = os.environ
) -> Iterator[tuple[BenchDevice, ...]]:
    """Lease the best of the devices that are free, and none where there are none. The lease ends with the block.

    `seconds` is the longest that it may take: a lease from inside a container lasts that long if this process is
    killed. Raises BenchError where none is free, with the reason for each.
    """
    if not devices:
        yield ()
        return
    leases = Leases(environ=environ)
    by_uuid = {device.uuid: device for device in devices}
    try:
        grant = obtain(
            leases,
            Request(count=1, uuids=tuple(by_uuid), accept_degraded=True),
            owners=(leases.host.owner(os.getpid()),),
            ttl=None if leases.host.sees_driver_pids else seconds,
            command="paddock bench",
        )
    except NoneFree as error:
        taken = [item for item in error.choice.refused if item.uuid in by_uuid]
        why = "; ".join(f"GPU {item.index} ({item.uuid}): {item.reason}" for item in taken) or error.choice.why
        fix = "choose others with --gpus, end what uses them, or wait for it"
        raise BenchError(f"no GPU is free: {why}\n    expected: one\n    fix: {fix}") from None
    try:
        yield tuple(by_uuid[device.uuid] for device in grant.lease.devices)
    finally:
        with suppress(GpuError):  # it ends with this process anyway
            leases.release(grant.lease.id)


def kind(devices: Sequence[BenchDevice]) -> str:
    """Return torch's name for the kind of the devices; without any it is the CPU's."""
    return TORCH_DEVICE[devices[0].gpu.vendor] if devices else "cpu"


def room(devices: Sequence[BenchDevice]) -> Room:
    """Return the memory of the device with the least, or of the machine."""
    if devices:
        rooms = [device.room for device in devices if device.room]
        return min(rooms, key=lambda room: room.free, default=_UNKNOWN)
    total = resources.memory_bytes()
    return _UNKNOWN if total is None else Room(total, resources.available_bytes() or total)


def _devices(gpu: Gpu) -> Iterator[BenchDevice]:
    if gpu.mig and gpu.mig.enabled:
        for part in gpu.mig.devices:
            yield BenchDevice(part.uuid, gpu, part)
    else:
        yield BenchDevice(gpu.uuid or "", gpu)


def _is(device: BenchDevice, name: str) -> bool:
    if name.isdecimal():
        return device.gpu.index == int(name)
    return any(uuid.lower().startswith(name.lower()) for uuid in (device.uuid, device.gpu.uuid or ""))
