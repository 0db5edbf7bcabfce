"""Lease of the GPU that a replica computes on, so that other programs of Paddock leave it alone."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paddock.gpu.errors import GpuError
from paddock.gpu.host.visibility import visible
from paddock.gpu.inventory import inventory
from paddock.gpu.leases import eligibility
from paddock.gpu.leases.allocation import obtain
from paddock.gpu.leases.manager import Leases
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Inventory
from paddock.modes.config import PRESETS
from paddock.modes.policy import Policy
from paddock.serve.errors import ServeError

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
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
    share: float | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    leases: Leases | None = None,
    read_inventory: Callable[[], Inventory] | None = None,
    wait: float = _WAIT_S,
) -> DeviceLease | None:
    """Lease the GPU, or the part of one, that this process sees, before it is used; None for what is no such device.

    `share` is the part of its memory that is taken beside others, None all of it. Raises ServeError with its holder
    where it is not free within `wait` seconds.
    """
    if device.partition(":")[0] != "cuda":
        return None
    leases = leases or Leases(environ=environ)
    contained = not leases.host.sees_driver_pids
    try:
        uuid = visible_uuid((read_inventory or inventory)(), environ)
        grant = obtain(
            leases,
            Request(uuids=(uuid,), share=share),
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


def lease_share(policy: Policy) -> float | None:
    """Return the part of a GPU's memory that a resource mode leases; None, the GPU alone, for a server's."""
    most = largest_memory_part(policy)
    return None if most >= PRESETS["aggressive"].max_vram_usage_percent else most


def largest_memory_part(policy: Policy) -> float:
    """Return the largest part of the memory that a policy ever takes."""
    configs = (policy.resources, *(PRESETS[window.mode] for window in policy.schedule))
    return max(config.max_vram_usage_percent for config in configs)


def visible_uuid(inventory: Inventory, environ: Mapping[str, str]) -> str:
    """Return the UUID of the one GPU, or part of one, that the environment shows. Raises ServeError."""
    shown = visible(inventory, environ)
    devices, _ = eligibility.devices(inventory)
    uuids = [device.uuid for device in devices if shown is None or shown.shows(device.uuid, device.gpu.uuid or "")]
    if len(uuids) == 1:
        return uuids[0]
    value = next((f"{name}={environ[name]}" for name in _VISIBLE if environ.get(name)), "no variable")
    there = ", ".join(device.uuid for device in devices) or "none"
    raise ServeError(f"the replica's GPU is not known: {value} shows {len(uuids)} of these devices: {there}")
