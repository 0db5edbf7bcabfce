"""Devices that can be leased, and the reasons why one does not fit a request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paddock.gpu.catalog_match import is_model
from paddock.gpu.health.rules import Finding
from paddock.gpu.host.visibility import Visible
from paddock.gpu.leases.lease import Lease
from paddock.gpu.leases.request import ENOUGH, Request
from paddock.gpu.model import Gpu, Inventory, Memory, MigDevice, Process

_DISPLAY_MIB = 64
"""Memory that a display server uses on every GPU, also on those without a display."""
_IN_USE = 0.1
"""Fraction of memory or time above which a GPU counts as used where its processes cannot be read."""
_UNTOLD_RESERVE = 0.03
"""Fraction of the memory that a driver reserves where it does not report it."""
_WHOLE = 1 + 1e-9
"""All shares of one GPU, with a margin for rounding."""


@dataclass(frozen=True, slots=True)
class LeasableDevice:
    """Whole GPU, or a MIG part of one."""

    uuid: str
    gpu: Gpu
    part: MigDevice | None = None

    @property
    def memory(self) -> Memory | None:
        return self.part.memory if self.part else self.gpu.memory

    @property
    def size(self) -> float:
        """Fraction of the whole GPU, by memory; 0 for a part of unknown memory."""
        if self.part is None:
            return 1
        whole, own = self.gpu.memory, self.part.memory
        return own.total / whole.total if whole and own and whole.total else 0

    @property
    def processes(self) -> tuple[Process, ...] | None:
        """Processes on the device, None if unknown. A process of an unknown part counts for all parts."""
        running = self.gpu.processes
        if running is None or self.part is None:
            return running
        return tuple(process for process in running if process.mig_uuid in {None, self.uuid})

    def leases(self, leases: Iterable[Lease]) -> tuple[Lease, ...]:
        """Return the leases of the device, of the GPU that it is a part of, or of one of its parts."""
        whole = self.gpu.uuid
        return tuple(
            lease
            for lease in leases
            if any(
                held.uuid == self.uuid or held.uuid == whole or (self.part is None and held.gpu == whole)
                for held in lease.devices
            )
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """Refusal of a device. `uuid` is None if unknown. `transient`: it may become free without other changes.

    `unhealthy`: it is refused for a fault only, and a request can accept that.
    """

    index: int
    uuid: str | None
    reason: str
    transient: bool = False
    unhealthy: bool = False


@dataclass(frozen=True, slots=True)
class SelectionContext:
    """Further inputs of a choice: see `paddock.gpu.leases.selection.choose`."""

    leases: Sequence[Lease] = ()
    visible: Visible | None = None
    descent: Mapping[int, frozenset[int]] | None = None
    own: int | None = None
    unfit: Mapping[int, Finding] = field(default_factory=dict)
    """GPUs that fail the health check, by index: see `paddock.gpu.health.check.unfit`."""

    def fault(self, device: LeasableDevice) -> str | None:
        """Return why its GPU should get no work."""
        finding = self.unfit.get(device.gpu.index)
        return finding.evidence.removeprefix(f"GPU {device.gpu.index}: ") if finding else None

    def foreign(self, device: LeasableDevice, holders: Sequence[Lease]) -> tuple[Process, ...]:
        """Return its processes that belong neither to its leases nor to the requesting process."""
        pids = {owner.pid for lease in holders for owner in lease.owners}
        above = self.descent or {}
        return tuple(
            process
            for process in device.processes or ()
            if process.pid != self.own
            and not above.get(process.pid, frozenset()) & pids
            and not (process.kind == "graphics" and process.memory is not None and process.memory <= _DISPLAY_MIB)
        )


def devices(inventory: Inventory) -> tuple[list[LeasableDevice], list[Refused]]:
    """Return the devices that can be leased, in PCI order, and the GPUs that cannot, including all lost ones."""
    available, refused = [], []
    for gpu in inventory.gpus:
        if gpu.state != "ok" or not gpu.uuid:
            why = f"it is {gpu.state}" if gpu.state != "ok" else "it has no UUID to know it by"
            refused.append(Refused(gpu.index, gpu.uuid, f"{why}: {gpu.reason}" if gpu.reason else why))
        elif gpu.mig and gpu.mig.enabled:
            parts = [LeasableDevice(part.uuid, gpu, part) for part in gpu.mig.devices]
            available += parts
            reason = "MIG divides it: its parts are leased instead" if parts else "MIG is on, but it has no parts"
            refused.append(Refused(gpu.index, gpu.uuid, reason))
        else:
            available.append(LeasableDevice(gpu.uuid, gpu))
    return sorted(available, key=_address), refused


def refusal(device: LeasableDevice, request: Request, context: SelectionContext) -> Refused | None:
    """Return the reason against the device; None where it is eligible."""
    gpu = device.gpu
    for reason in _permanent_reasons(device, request, context.visible):
        return Refused(gpu.index, device.uuid, reason)
    if (fault := context.fault(device)) and not request.accept_degraded:
        return Refused(gpu.index, device.uuid, fault, unhealthy=True)
    for reason in _transient_reasons(device, request, context):
        return Refused(gpu.index, device.uuid, reason, transient=True)
    return None


def share_left(device: LeasableDevice, leases: Iterable[Lease]) -> float:
    """Return the unleased fraction of its memory; 0 under an exclusive lease."""
    held = [1 if lease.share is None else lease.share for lease in device.leases(leases)]
    return max(0.0, 1 - math.fsum(held))


def _permanent_reasons(device: LeasableDevice, request: Request, visible: Visible | None) -> Iterable[str]:
    """Yield the reasons that hold no matter who uses the device."""
    gpu, part = device.gpu, device.part
    if visible and not visible.shows(device.uuid, gpu.uuid or ""):
        yield "the environment hides it"
    if request.uuids and not any(device.uuid.lower().startswith(prefix.lower()) for prefix in request.uuids):
        yield "it is not among the requested UUIDs"
    excluded = [model for model in request.exclude if is_model(gpu, model)]
    if excluded:
        yield f"{excluded[0]} is excluded"
    if request.mig and (part is None or part.profile != request.mig):
        yield f"it is not a {request.mig}" if part is None else f"it is a {part.profile}, not a {request.mig}"
    if part and request.count > 1:
        yield "a process can use one MIG part only"
    if part and request.workload == "graphics" and "gfx" not in part.profile:
        yield "a MIG part draws nothing"
    if gpu.compute_mode == "prohibited":
        yield "its compute mode lets no process in"
    if gpu.compute_mode == "exclusive-process" and request.share is not None:
        yield "its compute mode lets one process in, so it cannot be shared"
    if request.max_power_w is not None:
        limit = gpu.power.limit or gpu.power.default_limit
        if limit is None:
            yield "its power limit is not known"
        elif limit > request.max_power_w:
            yield f"it may draw {limit:g} W, more than {request.max_power_w:g} W"
    yield from _too_small(device, request)


def _too_small(device: LeasableDevice, request: Request) -> Iterable[str]:
    memory = device.memory
    if not request.min_memory_mib:
        return
    if memory is None:
        yield "its memory is not known"
        return
    limit = memory.total * (request.share or 1)
    if limit < request.min_memory_mib:
        part = "" if request.share is None else f"{request.share:g} of "
        yield f"{part}its memory is {_gib(limit)}, less than {request.min_memory_gib:g} GiB"


def _transient_reasons(device: LeasableDevice, request: Request, context: SelectionContext) -> Iterable[str]:
    """Yield the reasons that hold only now."""
    holders = device.leases(context.leases)
    exclusive = next((lease for lease in holders if lease.share is None), None)
    if exclusive:
        yield exclusive.claim
    if holders and request.share is None:
        yield f"shared by {', '.join(lease.holder for lease in holders)}"
    if request.share is not None and math.fsum([request.share, *(lease.share or 1 for lease in holders)]) > _WHOLE:
        yield f"{share_left(device, holders):g} of it is left, less than {request.share:g}"
    foreign = context.foreign(device, holders)
    if foreign and request.share is None:
        yield f"in use by {', '.join(map(_process, foreign[:3]))}{' and others' if len(foreign) > 3 else ''}"
    if device.processes is None and request.share is None and (used := _seems_used(device)):
        yield f"its processes cannot be read, and {used}"
    yield from _too_full(device, request, holders, foreign)
    if request.max_utilisation is not None:
        busy = None if device.part else device.gpu.utilisation.gpu
        if busy is None:
            yield "its utilisation is not known"
        elif busy > request.max_utilisation:
            yield f"it is {busy} % busy, more than {request.max_utilisation:g} %"


def _too_full(
    device: LeasableDevice, request: Request, holders: Sequence[Lease], foreign: Sequence[Process]
) -> Iterable[str]:
    """Yield the reason where too little memory is free and not reserved by leases that do not use it yet."""
    memory = device.memory
    if memory is None:
        return
    reserve = _UNTOLD_RESERVE * memory.total if memory.reserved is None else memory.reserved
    free, required = memory.free + reserve, request.min_memory_gib * 1024
    if request.share is not None:
        required = max(required, request.share * memory.total)
        promised = math.fsum(lease.share or 1 for lease in holders) * memory.total
        occupied: float = sum(process.memory or 0 for process in foreign)
        if device.processes is None:
            occupied = max(0, memory.total - free - promised)
        free = min(free, memory.total - promised - occupied)
    if free < required * ENOUGH:
        yield f"{_gib(max(0, free - reserve))} of its memory is free, less than {_gib(required)}"


def _seems_used(device: LeasableDevice) -> str | None:
    memory, busy = device.memory, device.gpu.utilisation.gpu
    if memory and not device.gpu.unified_memory and memory.used > _IN_USE * memory.total:
        return f"{_gib(memory.used)} of its memory is in use"
    return f"it is {busy} % busy" if busy is not None and busy > 100 * _IN_USE else None


def _process(process: Process) -> str:
    name = f" ({process.name})" if process.name else ""
    return f"pid {process.pid}{name}"


def _gib(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB"


def _address(device: LeasableDevice) -> tuple[str, int, int, int, str]:
    """Return the sort key: PCI order, and the UUID only for devices without an address."""
    part = device.part
    where = (part.gpu_instance, part.compute_instance) if part else (-1, -1)
    return (device.gpu.pci_address or "~", device.gpu.index, *where, device.uuid)
