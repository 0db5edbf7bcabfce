"""Lease of the GPU that a replica computes on, so that other programs of Paddock leave it alone."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paddock.gpu.errors import GpuError
from paddock.gpu.leases.allocation import obtain
from paddock.gpu.leases.manager import Leases
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Inventory
from paddock.serve.errors import ServeError

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_WAIT_S = 30.0
"""Seconds in which a former replica on the same GPU gives it back."""
_TTL_S, _RENEWED_EVERY_S = 120.0, 30.0
"""In a container no other one can see whether this process lives, so the lease is renewed."""


@dataclass(slots=True)
class DeviceLease:
    """Lease held by this process; it ends with `release`, or with the process."""

    id: str
    uuid: str
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


def lease_device(
    device: str,
    *,
    environ: Mapping[str, str] = os.environ,
    leases: Leases | None = None,
    read_inventory: Callable[[], Inventory] | None = None,
    wait: float = _WAIT_S,
) -> DeviceLease | None:
    """Lease the GPU that this process sees, before it is used; None for a device that is no GPU of the inventory.

    Raises ServeError with its holder where it is not free within `wait` seconds.
    """
    if device.partition(":")[0] != "cuda":
        return None
    if read_inventory is None:
        from paddock.gpu.inventory import inventory

        read_inventory = lambda: inventory(processes=True)  # noqa: E731 - the default of an argument
    leases = leases or Leases(environ=environ)
    contained = not leases.host.sees_driver_pids
    try:
        uuid = visible_uuid(read_inventory(), environ)
        grant = obtain(
            leases,
            Request(uuids=(uuid,)),
            read_inventory,
            owners=(leases.host.owner(os.getpid()),),
            ttl=_TTL_S if contained else None,
            wait=wait,
            command="serving",
        )
    except GpuError as error:
        lines = "; ".join(line.strip() for line in str(error).splitlines())
        raise ServeError(f"no lease of the GPU: {lines}") from None
    lease = DeviceLease(grant.lease.id, uuid, leases)
    if contained:
        threading.Thread(target=lease.renew, name="lease", daemon=True).start()
    return lease


def visible_uuid(inventory: Inventory, environ: Mapping[str, str]) -> str:
    """Return the UUID of the one GPU that the environment shows. Raises ServeError."""
    value = next((environ[name] for name in _VISIBLE if environ.get(name)), "")
    first = value.partition(",")[0].strip()
    if first and not first.isdecimal():
        return first
    for gpu in inventory.gpus:
        if gpu.uuid and (gpu.index == int(first) if first else len(inventory.gpus) == 1):
            return gpu.uuid
    there = ", ".join(str(gpu.index) for gpu in inventory.gpus) or "none"
    raise ServeError(f"the replica's GPU is not known: {value or 'no variable names it'}; the driver shows {there}")
