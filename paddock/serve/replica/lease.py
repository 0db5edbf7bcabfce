"""Lease of the GPUs that a replica computes on, so that other programs of Paddock leave them alone."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paddock.gpu.errors import GpuError
from paddock.gpu.leases.allocation import obtain
from paddock.gpu.leases.manager import Leases
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Inventory
from paddock.serve.errors import ServeError, in_one_line

_WAIT_S = 30.0
"""Seconds in which a former replica on the same GPU gives it back."""
_TTL_S, _RENEWED_EVERY_S = 120.0, 30.0
"""In a container no other one can see whether this process lives, so the lease is renewed."""


@dataclass(slots=True)
class DeviceLease:
    """Lease held by this process; it ends with `release`, or with the process."""

    id: str
    _leases: Leases
    _ended: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Give the GPU back. A second call does nothing."""
        if not self._ended.is_set():
            self._ended.set()
            with contextlib.suppress(GpuError):  # it has ended already
                self._leases.release(self.id)

    def renew(self) -> None:
        """Renew the lease until it is released."""
        while not self._ended.wait(_RENEWED_EVERY_S):
            with contextlib.suppress(GpuError):
                self._leases.renew(self.id)


def lease_devices(
    uuids: Sequence[str],
    share: float | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    leases: Leases | None = None,
    read_inventory: Callable[[], Inventory] | None = None,
    wait: float = _WAIT_S,
) -> DeviceLease | None:
    """Lease GPUs, or parts of one, by their UUIDs, before they are used; None for none.

    `share` is the part of their memory that is taken next to others, None all of it. Raises ServeError with the holder
    where one is not free within `wait` seconds.
    """
    if not uuids:
        return None
    leases = leases or Leases(environ=environ)
    contained = not leases.host.sees_driver_pids
    try:
        grant = obtain(
            leases,
            Request(count=len(uuids), uuids=tuple(uuids), share=share),
            read_inventory,
            owners=(leases.host.owner(os.getpid()),),
            ttl=_TTL_S if contained else None,
            wait=wait,
            command="serving",
        )
    except GpuError as error:
        raise ServeError(f"no lease of the GPU: {in_one_line(error)}") from None
    lease = DeviceLease(grant.lease.id, leases)
    if contained:
        threading.Thread(target=lease.renew, name="lease", daemon=True).start()
    return lease
