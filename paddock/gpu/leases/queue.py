"""The queue of requests that wait for GPUs: who is next, and which GPUs stay free for whom.

A request that waits has a ticket, a file next to the leases. Tickets are in the order of their priority, then of their
arrival. A ticket keeps every GPU that could serve it from later requests, or just those that it would take where they
are free, so a large request is not overtaken by small ones for ever. It lasts as long as the process that waits, and no
longer than that process wants to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paddock.errors import one_line
from paddock.gpu.errors import GpuInputError
from paddock.gpu.host.processes import Host, Owner
from paddock.gpu.leases.lease import Lease, LeasedDevice, parse_owner
from paddock.gpu.leases.request import Request
from paddock.gpu.leases.selection import Choice

SCHEMA = 1
LOWEST, HIGHEST = -100, 100
"""Priorities. A higher one is served first; 0 is the usual one."""
_GRACE = 2.0
"""Seconds after its deadline for which a ticket counts, since its process asks a last time."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Place in the queue. `until` is in seconds since boot, `number` counts arrivals."""

    id: str
    priority: int
    number: int
    request: Request
    owner: Owner
    boot_id: str
    until: float
    user: str
    command: str

    @property
    def place(self) -> tuple[int, int]:
        return -self.priority, self.number

    def waits(self, host: Host) -> bool:
        """Tell whether its process still waits, as far as can be seen from here."""
        if self.boot_id != host.boot_id or host.clock() > self.until + _GRACE:
            return False
        return host.alive(self.owner) is not False


@dataclass(frozen=True, slots=True)
class Promise(Lease):
    """GPUs that stay free for a ticket."""

    @property
    def claim(self) -> str:
        return f"kept for {self.holder}, who waits for it"


def check_priority(priority: int) -> None:
    """Raises GpuInputError."""
    if not LOWEST <= priority <= HIGHEST:
        raise GpuInputError(f"a priority of {priority}\n    expected: a whole number, {LOWEST} to {HIGHEST}")


def promises(tickets: Iterable[Ticket], choose: Callable[[Request, Sequence[Promise]], Choice]) -> tuple[Promise, ...]:
    """Return the GPUs that stay free for these tickets, which are in order.

    `choose` chooses for a request among the GPUs that neither leases nor the promises passed keep.
    """
    kept: list[Promise] = []
    for ticket in tickets:
        choice = choose(ticket.request, kept)
        if choice.hopeless:
            continue
        devices = [LeasedDevice(device.uuid, device.gpu) for device in choice.taken]
        if not choice.satisfied:
            devices = [
                LeasedDevice(refused.uuid, refused.uuid)
                for refused in choice.refused
                if refused.transient and refused.uuid
            ]
        if devices:
            kept.append(_promise(ticket, devices, whole=not choice.satisfied))
    return tuple(kept)


def _promise(ticket: Ticket, devices: Sequence[LeasedDevice], *, whole: bool) -> Promise:
    return Promise(
        id=ticket.id,
        devices=tuple(devices),
        share=None if whole else ticket.request.share,
        owners=(ticket.owner,),
        boot_id=ticket.boot_id,
        user=ticket.user,
        command=ticket.command,
        created="",
        ttl=None,
        renewed=0,
    )


def data(ticket: Ticket) -> dict[str, Any]:
    return {"schema": SCHEMA, **asdict(ticket)}


def parse(text: bytes, name: str) -> Ticket:
    """Parse a ticket of that name. Raises ValueError, KeyError, TypeError or GpuInputError for anything else."""
    document = json.loads(text)
    if document["schema"] != SCHEMA or document["id"] != name:
        raise ValueError
    owner = parse_owner(document["owner"])
    boot_id, user, command = (one_line(document[key]) for key in ("boot_id", "user", "command"))
    priority, number, until = (document[key] for key in ("priority", "number", "until"))
    if not all(isinstance(value, int | float) for value in (priority, number, until)):
        raise TypeError
    check_priority(priority)
    return Ticket(name, priority, number, Request.from_dict(document["request"]), owner, boot_id, until, user, command)
