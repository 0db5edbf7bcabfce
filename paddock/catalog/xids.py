"""NVIDIA's Xids and, of NVSwitches, SXids: what the number of an error in the kernel log means, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Mapping

Action = Literal["restart-app", "ignore", "reset", "reboot", "workflow", "replace"]


@dataclass(frozen=True, slots=True)
class Xid:
    """`then` is what to do for a workflow whose steps nobody follows; `driver` is what the driver itself asks for."""

    code: int
    what: str
    action: Action
    then: Literal["ignore", "reset", "replace", "driver"] | None
    severity: Literal["note", "degraded", "unhealthy"]
    source: str


@dataclass(frozen=True, slots=True)
class Sxid:
    """Error of an NVSwitch, which concerns all GPUs on it."""

    code: int
    what: str
    action: Literal["reset", "reboot"]
    severity: Literal["degraded", "unhealthy"]
    source: str


@cache
def xids() -> Mapping[int, Xid]:
    """Every Xid that asks for something, by number."""
    return _data.keyed(Xid, "code", "xids.json")


def xid(code: int) -> Xid | None:
    """None for a number of which no source says what to do."""
    return xids().get(code)


@cache
def sxids() -> Mapping[int, Sxid]:
    """Every SXid that asks for something, by number."""
    return _data.keyed(Sxid, "code", "sxids.json")
