"""Devices that can hold a model, as agents report them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from paddock.modes.admission import Room
from paddock.modes.config import ResourceConfig

Backend = Literal["cuda", "rocm", "metal", "cpu"]
BACKENDS: tuple[Backend, ...] = ("cuda", "rocm", "metal", "cpu")
"""The order decides between backends of as many devices."""
SERVES = "it serves "
"""Beginning of the reason of a device that another instance has, before its id."""
WITHOUT_BF16 = ("bf16",)
"""Formats that a GPU without bf16 lacks."""
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Device:
    """One device. None is unknown.

    `name` is the model. `part` is the number of a MIG part, which is a device of its own. `uuid` is the driver's, by
    which a process is shown the device: indexes differ between drivers. `lacks` are number formats that it does not
    compute. A device that is `unavailable` holds no model, for that reason. One that is `busy` holds none alone for
    now, and none next to others that asks for more than `share_left`, a part of its memory. `without` are engines that
    do not compute on it as they are installed there, each with the reason.
    """

    agent: str
    backend: Backend
    index: int
    memory_mib: int | None
    free_mib: int | None
    name: str | None = None
    bandwidth_gbs: float | None = None
    part: int | None = None
    lacks: tuple[str, ...] = ()
    unavailable: str = ""
    uuid: str | None = None
    busy: str = ""
    share_left: float = 1.0
    without: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, int, int, int]:
        """Return its identity, by which devices are sorted."""
        return self.agent, BACKENDS.index(self.backend), self.index, -1 if self.part is None else self.part

    @property
    def label(self) -> str:
        return f"{self.agent}/{self.backend}:{self.index}{'' if self.part is None else f'.{self.part}'}"

    def refusal(self, share: float | None) -> str:
        """Return why it holds no model that asks for that part of its memory, None for all of it; empty if it may."""
        if self.unavailable:
            return self.unavailable
        if share is None:
            return self.busy
        if share <= self.share_left:
            return ""
        left = f"{self.share_left:.0%} of its memory can be leased, and the mode asks for {share:.0%}"
        return f"{left}: {self.busy}" if self.busy else left

    def allowed(self, reserve: float) -> int:
        """Return the bytes that a model may take where that part of the memory is left to others."""
        if self.memory_mib is None or self.free_mib is None:
            return 0
        return Room(self.memory_mib * _MIB, self.free_mib * _MIB).allowed(_limits(reserve))


@cache
def _limits(reserve: float) -> ResourceConfig:
    return ResourceConfig(max_vram_usage_percent=1 - reserve)
