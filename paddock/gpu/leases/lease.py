"""A lease and its JSON form."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from paddock.errors import one_line
from paddock.gpu.host.processes import Owner

_ID = re.compile("[0-9a-f]{8}")
SCHEMA = 1
"""Version of the file's format."""


@dataclass(frozen=True, slots=True)
class LeasedDevice:
    """Device of a lease. `gpu` is the UUID of the GPU of a MIG part, and equals `uuid` for a whole GPU."""

    uuid: str
    gpu: str


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease of one or more devices. `share` is None for exclusive leases.

    `ttl` and `renewed` are in seconds, `renewed` since boot; `created` is ISO 8601, UTC, and informational.
    """

    id: str
    devices: tuple[LeasedDevice, ...]
    share: float | None
    owners: tuple[Owner, ...]
    boot_id: str
    user: str
    command: str
    created: str
    ttl: float | None
    renewed: float

    @property
    def mode(self) -> Literal["exclusive", "shared"]:
        return "exclusive" if self.share is None else "shared"

    @property
    def claim(self) -> str:
        """Reason against requests for its devices."""
        return f"leased to {self.holder}"

    @property
    def holder(self) -> str:
        """Holder's name for messages."""
        owner = str(self.owners[-1]) if self.owners else f"for {self.ttl:g} s"
        return f"{self.user} ({f'{self.command}, ' if self.command else ''}{owner})"


def data(lease: Lease) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": lease.id,
        "devices": [{"uuid": device.uuid, "gpu": device.gpu} for device in lease.devices],
        "mode": lease.mode,
        "share": lease.share,
        "owners": [{"pid": owner.pid, "start": owner.start, "namespace": owner.namespace} for owner in lease.owners],
        "boot_id": lease.boot_id,
        "user": lease.user,
        "command": lease.command,
        "created": lease.created,
        "ttl": lease.ttl,
        "renewed": lease.renewed,
    }


def parse(document: Any, name: str) -> Lease:
    """Parse a lease of that name. Raises ValueError, KeyError or TypeError for anything else."""
    if document["schema"] != SCHEMA or document["id"] != name or not _ID.fullmatch(name):
        raise ValueError
    devices = tuple(LeasedDevice(_text(device["uuid"]), _text(device["gpu"])) for device in document["devices"])
    owners = tuple(map(parse_owner, document["owners"]))
    share, ttl = _number(document["share"]), _number(document["ttl"])
    renewed = _number(document["renewed"])
    if not devices or renewed is None or not (owners or ttl is not None) or not (share is None or 0 < share <= 1):
        raise ValueError
    boot_id, user, command, created = (_text(document[key]) for key in ("boot_id", "user", "command", "created"))
    return Lease(name, devices, share, owners, boot_id, user, command, created, ttl, renewed)


def parse_owner(document: Any) -> Owner:
    """Parse a process. Raises KeyError or TypeError for anything else."""
    return Owner(_pid(document["pid"]), _whole(document["start"]), _text(document["namespace"]))


def _text(value: Any) -> str:
    """Return text that is safe to print: the file may be another user's."""
    if not isinstance(value, str):
        raise TypeError
    return one_line(value)


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError
    return value


def _whole(value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError
    return value


def _pid(value: Any) -> int:
    pid = _whole(value)
    if pid is None or not 0 < pid < 1 << 31:
        raise ValueError
    return pid
