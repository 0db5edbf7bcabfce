"""Leases on the GPUs under test: nobody else's work runs on them, and nobody is given a GPU that is being tested."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from paddock.gpu.errors import GpuError
from paddock.gpu.leases.allocation import obtain
from paddock.gpu.leases.manager import Grant, Leases, NoneFree
from paddock.gpu.leases.request import Request


@contextmanager
def leased(uuids: Sequence[str], seconds: float, leases: Leases) -> Iterator[dict[str, str]]:
    """Lease each GPU or part and yield why not, by UUID, for those that others have. The leases end with the block.

    `seconds` is the longest that the test may take: a lease from inside a container lasts that long if it is killed.
    """
    refused: dict[str, str] = {}
    with ExitStack() as stack:
        for uuid in uuids:
            try:
                grant = obtain(
                    leases,
                    Request(uuids=(uuid,), accept_degraded=True),
                    owners=(leases.host.owner(os.getpid()),),
                    ttl=None if leases.host.sees_driver_pids else seconds,
                    command="paddock smoke",
                )
            except NoneFree as error:
                reasons = (device.reason for device in error.choice.refused if device.uuid == uuid)
                refused[uuid] = next(reasons, error.choice.why)
            else:
                stack.callback(_release, leases, grant)
        yield refused


def _release(leases: Leases, grant: Grant) -> None:
    with suppress(GpuError):  # it ends with this process anyway
        leases.release(grant.lease.id)
