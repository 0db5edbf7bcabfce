"""Allocate and release GPUs, with results as JSON documents."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from paddock.errors import program
from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.health.check import logged_events
from paddock.gpu.health.xid import Event
from paddock.gpu.host.bounded import Bounded
from paddock.gpu.host.processes import Owner
from paddock.gpu.host.visibility import visibility_variables
from paddock.gpu.leases.lease import Lease, data
from paddock.gpu.leases.manager import Grant, Leases, NoneFree
from paddock.gpu.leases.queue import Ticket, check_priority
from paddock.gpu.leases.request import Request
from paddock.gpu.leases.store import LeasesLocked
from paddock.gpu.model import SCHEMA, Inventory

LEASE = "PADDOCK_GPU_LEASE"
"""Environment variable with the id of a process's lease."""
_ASKED_AGAIN = 1.0
"""Seconds between two requests of one that waits: owners may have ended, and other programs their work."""
_LOOKED_AGAIN = 0.02
"""Seconds between two looks at the folder, which shows what was released."""
_PROMPT = 8
"""Requests before one in the queue with which it need not react to each release at once."""

InventoryReader = Callable[[], Inventory]


def allocate(
    request: Request,
    *,
    owner: int | None = None,
    ttl: float | None = None,
    wait: float = 0,
    command: str = "",
    priority: int = 0,
    leases: Leases | None = None,
    read_inventory: InventoryReader | None = None,
) -> dict[str, Any]:
    """Lease GPUs until `owner`, a pid, ends; with neither owner nor `ttl` (seconds), until the calling process ends.

    Raises NoneFree when none are free within `wait` seconds, and GpuInputError.
    """
    leases = leases or Leases()
    if owner is not None:
        owners: tuple[Owner, ...] = (leases.host.owner(owner),)
    else:
        owners = () if ttl is not None else (leases.host.caller(),)
    grant = obtain(
        leases, request, read_inventory, owners=owners, ttl=ttl, wait=wait, command=command, priority=priority
    )
    return grant_document(grant, leases)


def deallocate(
    names: Sequence[str] = (), *, leases: Leases | None = None, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Release leases, named by id or by a UUID that no other lease holds; by default the one in the environment.

    Raises GpuInputError.
    """
    leases = leases or Leases()
    released = leases.release(*_resolve_ids(names, leases, environ))
    return {"schema": SCHEMA, "released": [data(lease) for lease in released], "folder": str(leases.path)}


def renew(
    which: Sequence[str] = (),
    ttl: float | None = None,
    *,
    leases: Leases | None = None,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """Restart the time to live of leases, or set it to `ttl` seconds; named as for `deallocate`.

    Raises GpuInputError for a lease that has ended.
    """
    leases = leases or Leases()
    names = _resolve_ids(which, leases, environ)
    return {"schema": SCHEMA, "renewed": [data(leases.renew(name, ttl)) for name in names], "folder": str(leases.path)}


def list_leases(leases: Leases | None = None) -> dict[str, Any]:
    """Return all leases with their state."""
    leases = leases or Leases()
    documents = [{**data(lease), "state": state} for lease, state in leases.all()]
    waiting = [
        {
            "id": ticket.id,
            "priority": ticket.priority,
            "gpus": ticket.request.count,
            "user": ticket.user,
            "command": ticket.command,
            "pid": ticket.owner.pid,
        }
        for ticket in leases.queue()
    ]
    return {"schema": SCHEMA, "folder": str(leases.path), "leases": documents, "waiting": waiting}


def obtain(
    leases: Leases,
    request: Request,
    read_inventory: InventoryReader | None = None,
    *,
    owners: Sequence[Owner],
    ttl: float | None = None,
    wait: float = 0,
    command: str = "",
    priority: int = 0,
) -> Grant:
    """Lease GPUs now, or as soon as others release them within `wait` seconds, in which the driver's start counts.

    Those who wait are served in the order of their priority, then of their arrival. Without `read_inventory`, the GPUs
    and the kernel's log of this machine are read. Raises NoneFree, LeasesLocked and DriverHangs.
    """
    if not wait >= 0:
        raise GpuInputError(f"cannot wait for {wait:g} s\n    expected: seconds, 0 or more")
    check_priority(priority)
    place = _Place(leases, request, time.monotonic() + wait if wait else None, priority, command)

    def take(read: InventoryReader, xids: Sequence[Event]) -> Grant:
        return leases.take(
            request,
            read,
            owners=owners,
            ttl=ttl,
            command=command,
            xids=xids,
            lock_seconds=place.remaining,
            priority=priority,
            ticket=place.ticket,
        )

    with place:
        if read_inventory is not None:
            return place.wait(lambda: take(read_inventory, ()))
        xids = logged_events()
        with inventory_reader(request) as read:
            return place.wait(lambda: take(read, xids))


class _Place:
    """Place in the queue: from the first refusal to the grant or the deadline, a monotonic time."""

    def __init__(self, leases: Leases, request: Request, until: float | None, priority: int, command: str) -> None:
        self.ticket: Ticket | None = None
        self._leases = leases
        self._request = request
        self._until = until
        self._priority = priority
        self._command = command

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, if there is one."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def wait(self, take: Callable[[], Grant]) -> Grant:
        """Repeat `take` until it grants. Raises NoneFree, and LeasesLocked where that never was the reason."""
        refusal: NoneFree | None = None
        while True:
            before = self._leases.changed()
            try:
                grant = take()
            except LeasesLocked as locked:
                raise refusal or locked from None
            except NoneFree as error:
                refusal = error
                if refusal.choice.hopeless or not self.remaining:
                    raise
            else:
                self.ticket = None
                return grant
            if self.ticket is None:
                until = self._leases.host.clock() + self.remaining
                self.ticket = self._leases.join_queue(
                    self._request, until, priority=self._priority, command=self._command
                )
            else:
                self._pause(before, refusal.ahead)

    def _pause(self, before: frozenset[str], ahead: int) -> None:
        """Sleep until something has changed that may help, for a second at most."""
        end = time.monotonic() + min(_ASKED_AGAIN, self.remaining or 0)
        while time.monotonic() < end:
            time.sleep(min(_LOOKED_AGAIN, max(0.0, end - time.monotonic())))
            if ahead < _PROMPT and self._leases.changed() != before:
                return

    def __enter__(self) -> _Place:
        return self

    def __exit__(self, *_: object) -> None:
        if self.ticket:
            with suppress(GpuError):  # it ends with this process anyway
                self._leases.leave_queue(self.ticket)


@contextmanager
def inventory_reader(request: Request) -> Iterator[InventoryReader]:
    """Yield a reader of the details that the request needs for a choice.

    It has read the GPUs once: starting a driver takes seconds, which nobody should spend with the leases locked.
    """
    from paddock.gpu.inventory import inventory

    with Bounded(lambda: inventory(processes=True, topology=request.count > 1)) as read:
        read()
        yield read


def environment(grant: Grant) -> dict[str, str | None]:
    """Return the variables that show a program its GPUs and no others; None is a variable to remove."""
    lease = grant.lease
    first = grant.inventory.gpu(lease.devices[0].gpu)
    return {
        LEASE: lease.id,
        **visibility_variables(first.vendor if first else None, [device.uuid for device in lease.devices]),
    }


def exports(variables: Mapping[str, str | None]) -> str:
    """Return the variables as shell commands: `eval "$(paddock gpu.allocate)"`."""
    lines = (
        f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}" for name, value in variables.items()
    )
    return "\n".join(lines) + "\n"


def grant_document(grant: Grant, leases: Leases) -> dict[str, Any]:
    """Return the grant as a JSON document."""
    return {
        "schema": SCHEMA,
        "lease": data(grant.lease),
        "folder": str(leases.path),
        **grant.choice.document(),
        "environment": environment(grant),
    }


def _resolve_ids(selectors: Sequence[str], leases: Leases, environ: Mapping[str, str]) -> list[str]:
    """Return the ids of the named leases, or of the environment's."""
    names = tuple(selectors) or tuple(filter(None, [environ.get(LEASE)]))
    if not names:
        raise GpuInputError(
            f"which lease?\n    expected: its id, the UUID of its GPU, or {LEASE} in the environment"
            f"\n    fix: `{program()} gpu.list --leases` lists them"
        )
    existing = [lease for lease, _ in leases.all()]
    return [_id(name, existing) for name in names]


def _id(name: str, existing: Sequence[Lease]) -> str:
    """Return the id of the lease that holds this UUID; the name itself if it is not a UUID."""
    if not name.startswith(("GPU-", "MIG-")):
        return name
    holders = [lease for lease in existing if any(device.uuid == name for device in lease.devices)]
    if len(holders) > 1:
        ids = ", ".join(f"{lease.id} of {lease.holder}" for lease in holders)
        raise GpuInputError(f"{name} is shared\n    expected: one lease of {ids}\n    fix: name it by its id")
    return holders[0].id if holders else name
