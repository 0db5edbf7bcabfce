"""Allocate and release GPUs, with results as JSON documents."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddock.gpu import serialization
from paddock.gpu.errors import GpuInputError
from paddock.gpu.host.processes import Owner
from paddock.gpu.host.visibility import visibility_variables
from paddock.gpu.leases.lease import Lease, data
from paddock.gpu.leases.manager import Grant, Leases, NoneFree
from paddock.gpu.leases.request import Request
from paddock.gpu.leases.selection import Choice
from paddock.gpu.model import SCHEMA, Inventory

LEASE = "PADDOCK_GPU_LEASE"
"""Environment variable with the id of a process's lease."""
_ASKED_AGAIN = 1.0

InventoryReader = Callable[[], Inventory]


def allocate(
    request: Request,
    *,
    owner: int | None = None,
    ttl: float | None = None,
    wait: float = 0,
    command: str = "",
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
        leases, request, read_inventory or inventory_reader(request), owners=owners, ttl=ttl, wait=wait, command=command
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
    return {"schema": SCHEMA, "folder": str(leases.path), "leases": documents}


def obtain(
    leases: Leases,
    request: Request,
    read_inventory: InventoryReader,
    *,
    owners: Sequence[Owner],
    ttl: float | None = None,
    wait: float = 0,
    command: str = "",
) -> Grant:
    """Lease GPUs now, or as soon as others release them within `wait` seconds. Raises NoneFree."""
    if not wait >= 0:
        raise GpuInputError(f"cannot wait for {wait:g} s\n    expected: seconds, 0 or more")
    until = time.monotonic() + wait
    while True:
        try:
            return leases.take(request, read_inventory, owners=owners, ttl=ttl, command=command)
        except NoneFree as refusal:
            remaining = until - time.monotonic()
            if refusal.choice.hopeless or remaining <= 0:
                raise
        time.sleep(min(_ASKED_AGAIN, remaining))


def inventory_reader(request: Request) -> InventoryReader:
    """Return a reader of the details that the request needs for a choice."""
    from paddock.gpu.inventory import inventory

    return lambda: inventory(processes=True, topology=request.count > 1)


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
        **choice_document(grant.choice),
        "environment": environment(grant),
    }


def choice_document(choice: Choice) -> dict[str, Any]:
    """Return why each GPU was taken or refused; the parts of `score` are 0 to 1000."""
    return {
        "taken": [{**serialization.data(candidate), "score": dict(candidate.score)} for candidate in choice.taken],
        "refused": [
            {"index": refusal.index, "uuid": refusal.uuid, "reason": refusal.reason, "passing": refusal.transient}
            for refusal in choice.refused
        ],
        "why": choice.why,
        "notes": list(choice.notes),
    }


def _resolve_ids(selectors: Sequence[str], leases: Leases, environ: Mapping[str, str]) -> list[str]:
    """Return the ids of the named leases, or of the environment's."""
    names = tuple(selectors) or tuple(filter(None, [environ.get(LEASE)]))
    if not names:
        raise GpuInputError(
            f"which lease?\n    expected: its id, the UUID of its GPU, or {LEASE} in the environment"
            "\n    fix: `paddock gpu.leases` lists them"
        )
    existing = [lease for lease, _ in leases.all()]
    return [_id(name, existing) for name in names]


def _id(name: str, existing: Sequence[Lease]) -> str:
    """Return the id of the lease that holds this UUID; the name itself where it is none."""
    if not name.startswith(("GPU-", "MIG-")):
        return name
    holders = [lease for lease in existing if any(device.uuid == name for device in lease.devices)]
    if len(holders) > 1:
        ids = ", ".join(f"{lease.id} of {lease.holder}" for lease in holders)
        raise GpuInputError(f"{name} is shared\n    expected: one lease of {ids}\n    fix: name it by its id")
    return holders[0].id if holders else name
