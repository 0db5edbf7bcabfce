"""Leases of GPUs to one process or shared by several, reclaimed when their owners end without releasing them.

A lease holds as long as one of its owners lives, whatever its time to live: no clock takes a GPU from running work.
The time to live counts where no owner is visible: none was named, or it lives in another container, into which only the
host can look. So a lease that is taken in a container needs one, or it would keep its GPUs after the container. Clocks
count from boot, so setting the time of day changes nothing, and a reboot ends every lease.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from paddock.errors import did_you_mean, program
from paddock.gpu.errors import GpuError, GpuInputError, NoGpu
from paddock.gpu.health.check import unfit
from paddock.gpu.health.xid import Event
from paddock.gpu.host.processes import Host, Owner, this_host
from paddock.gpu.host.visibility import visible
from paddock.gpu.leases import queue
from paddock.gpu.leases.eligibility import SelectionContext
from paddock.gpu.leases.lease import Lease, LeasedDevice
from paddock.gpu.leases.queue import Ticket
from paddock.gpu.leases.request import Request, within_limit
from paddock.gpu.leases.selection import Choice, choose
from paddock.gpu.leases.store import Changes, Folder, default_folder
from paddock.gpu.model import Inventory

State = Literal["held", "owner-ended", "expired", "before-reboot"]
"""Only a held lease keeps its GPUs."""


class NoneFree(NoGpu):
    """Raised when too few GPUs are free; `choice` has the reason for every GPU."""

    def __init__(self, choice: Choice, ahead: int = 0) -> None:
        fix = "ask for less" if choice.hopeless else "wait for them (`--wait SECONDS`), or ask for less"
        if any(refused.unhealthy for refused in choice.refused):
            fix += f"; `{program()} gpu.health` says what the unhealthy ones need"
            fix += ", --accept-degraded takes them as they are"
        super().__init__(f"{choice}\n    fix: {fix}" if choice.refused else choice.why)
        self.choice = choice
        self.ahead = ahead
        """Requests before this one in the queue."""

    @property
    def document(self) -> dict[str, Any]:
        return {**super().document, "lease": None, **self.choice.document()}


@dataclass(frozen=True, slots=True)
class Grant:
    lease: Lease
    choice: Choice
    inventory: Inventory


class Leases:
    """Leases of a folder, by default that of the machine or the user: see `default_folder`."""

    def __init__(
        self, folder: Path | None = None, *, host: Host | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.path = folder or default_folder(environ)
        self.host = host or this_host()
        self._folder = Folder(self.path)
        self._environ = environ

    def all(self) -> tuple[tuple[Lease, State], ...]:
        """Return every stored lease with its state, also ended ones. Changes nothing."""
        return tuple((lease, self.state(lease)) for lease in self._folder.leases())

    def held(self) -> tuple[Lease, ...]:
        """Return the leases that keep their GPUs."""
        return tuple(lease for lease, state in self.all() if state == "held")

    def state(self, lease: Lease) -> State:
        if lease.boot_id != self.host.boot_id:
            return "before-reboot"
        alive = [self.host.alive(owner) for owner in lease.owners]
        if any(alive):
            return "held"
        if lease.owners and None not in alive:
            return "owner-ended"
        return "expired" if lease.ttl is not None and self.host.clock() - lease.renewed > lease.ttl else "held"

    def take(
        self,
        request: Request,
        read_inventory: Callable[[], Inventory],
        *,
        owners: Sequence[Owner] = (),
        ttl: float | None = None,
        command: str = "",
        xids: Sequence[Event] = (),
        lock_seconds: float | None = None,
        priority: int = 0,
        ticket: Ticket | None = None,
    ) -> Grant:
        """Read the GPUs, choose and lease in one step under the lock.

        `ttl` in seconds is required without owners. `xids` are the driver's errors in the kernel log. Ended leases are
        removed. `lock_seconds` is the most to wait for the lock. Requests in the queue come first where their priority
        is higher, or the same and `ticket` is not before theirs. Raises LeasesLocked, NoneFree and GpuInputError.
        """
        within_limit(request, self._environ)
        _check(owners, ttl, self.host)
        with self._folder.locked(lock_seconds) as changes:
            changes.tidy()
            existing = changes.leases()
            held = self._clear(changes, existing)
            ahead = self._ahead(changes, priority, ticket)
            inventory = read_inventory()
            descent = self._descent(inventory, held)
            kept = queue.promises(
                ahead, lambda other, kept: choose(inventory, other, (*held, *kept), descent=descent, xids=xids)
            )
            choice = choose(
                inventory,
                request,
                (*held, *kept),
                visible(inventory, self._environ),
                descent=descent,
                own=os.getpid() if self.host.sees_driver_pids else None,
                xids=xids,
            )
            if not choice.satisfied:
                raise NoneFree(choice, len(ahead))
            lease = Lease(
                id=_fresh({lease.id for lease in existing}),
                devices=tuple(LeasedDevice(device.uuid, device.gpu) for device in choice.taken),
                share=request.share,
                owners=tuple(owners),
                boot_id=self.host.boot_id,
                user=_user(),
                command=command,
                created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
                ttl=ttl,
                renewed=self.host.clock(),
            )
            changes.write(lease)
            if ticket:
                changes.remove(ticket)
        return Grant(lease, choice, inventory)

    def context(self, inventory: Inventory, xids: Sequence[Event] = ()) -> SelectionContext:
        """Return what decides at this moment which devices of an inventory with its processes can be leased."""
        held = self.held()
        descent = self._descent(inventory, held)
        return SelectionContext(held, visible(inventory, self._environ), descent, None, unfit(inventory, xids))

    def queue(self) -> tuple[Ticket, ...]:
        """Return the requests that wait, the next one first."""
        return tuple(ticket for ticket in self._folder.tickets() if ticket.waits(self.host))

    def join_queue(self, request: Request, until: float, *, priority: int = 0, command: str = "") -> Ticket:
        """Put a request of this process at the end of its priority, until `until` in seconds since boot at most."""
        with self._folder.locked() as changes:
            tickets = changes.tickets()
            ticket = Ticket(
                id=_fresh({ticket.id for ticket in tickets}),
                priority=priority,
                number=1 + max((ticket.number for ticket in tickets), default=0),
                request=request,
                owner=self.host.owner(os.getpid()),
                boot_id=self.host.boot_id,
                until=until,
                user=_user(),
                command=command,
            )
            changes.write(ticket)
        return ticket

    def leave_queue(self, ticket: Ticket) -> None:
        with self._folder.locked() as changes:
            changes.remove(ticket)

    def changed(self) -> frozenset[str]:
        """Return a value that differs after each lease, release and ticket: cheaper to compare than to ask again."""
        return self._folder.names()

    def _ahead(self, changes: Changes, priority: int, ticket: Ticket | None) -> tuple[Ticket, ...]:
        """Return the requests that come first, and remove those that nobody waits for any more."""
        own = ticket.place if ticket else (-priority, math.inf)
        ahead = []
        for other in changes.tickets():
            if not other.waits(self.host):
                changes.remove(other)
            elif other.place < own:
                ahead.append(other)
        return tuple(ahead)

    def release(self, *ids: str) -> tuple[Lease, ...]:
        """Release leases of any owner. Raises GpuInputError, and releases none, where one does not exist."""
        with self._folder.locked() as changes:
            released = self._find(changes, ids)
            for lease in released:
                if not changes.remove(lease):
                    raise GpuError(
                        f"the lease {lease.id} is {lease.user}'s\n    expected: one of yours\n"
                        f"    fix: let {lease.user} or root give it back"
                    )
        return released

    def renew(self, id: str, ttl: float | None = None) -> Lease:
        """Restart the time to live, and set it to `ttl` if given. Raises GpuInputError."""
        _check((), 1 if ttl is None else ttl, self.host)
        return self._change(
            id, lambda lease: replace(lease, renewed=self.host.clock(), ttl=lease.ttl if ttl is None else ttl)
        )

    def watch(self, id: str, pid: int) -> Lease:
        """Add an owner: the lease holds as long as this process lives, too. Raises GpuInputError."""
        owner = self.host.owner(pid)
        return self._change(id, lambda lease: replace(lease, owners=(*lease.owners, owner)))

    def _change(self, id: str, new: Callable[[Lease], Lease]) -> Lease:
        with self._folder.locked() as changes:
            (lease,) = self._find(changes, (id,))
            if (state := self.state(lease)) != "held":
                raise GpuInputError(
                    f"the lease {id} has ended ({state}), so its GPUs may be leased to others\n"
                    "    expected: one that is held\n    fix: take a new one"
                )
            changed = new(lease)
            changes.write(changed)
        return changed

    def _clear(self, changes: Changes, existing: Sequence[Lease]) -> tuple[Lease, ...]:
        """Remove ended leases. Return the held ones."""
        held = []
        for lease in existing:
            if self.state(lease) == "held":
                held.append(lease)
            else:
                changes.remove(lease)
        return tuple(held)

    def _descent(self, inventory: Inventory, held: Sequence[Lease]) -> Mapping[int, frozenset[int]]:
        pids = {process.pid for gpu in inventory.gpus for process in gpu.processes or ()}
        here = {owner.pid for lease in held for owner in lease.owners if owner.namespace == self.host.namespace}
        return self.host.descent(pids, here)

    def _find(self, changes: Changes, ids: Sequence[str]) -> tuple[Lease, ...]:
        existing = {lease.id: lease for lease in changes.leases()}
        for id in ids:
            if id not in existing:
                choices = f"one of {', '.join(existing)}" if existing else "none, since no GPU is leased"
                expected = did_you_mean(id, existing, choices)
                raise GpuInputError(f"there is no lease {id!r} in {self.path}\n    expected: {expected}")
        return tuple(existing[id] for id in dict.fromkeys(ids))


def _check(owners: Sequence[Owner], ttl: float | None, host: Host) -> None:
    if ttl is not None and not (0 < ttl < math.inf):
        raise GpuInputError(f"a time to live of {ttl:g} s\n    expected: seconds, more than 0")
    if ttl is None and not owners:
        raise GpuInputError(
            "a lease without an owner would never end\n    expected: the pid of a process, or a time to live"
            "\n    fix: --owner PID, or --ttl SECONDS"
        )
    if ttl is None and not host.sees_driver_pids:
        raise GpuInputError(
            f"{owners[-1]} is in a container, and other containers cannot see whether it still lives\n    expected: a"
            " time after which the lease ends for them\n    fix: --ttl SECONDS, which gpu.renew prolongs, or gpu.run,"
            " which does so itself"
        )


def _fresh(used: set[str]) -> str:
    while (id := os.urandom(4).hex()) in used:
        pass
    return id


@cache
def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
