"""The protocol that every driver's reader implements: NVML, amdgpu's sysfs, macOS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from paddock.gpu.errors import GpuError
from paddock.gpu.model import Driver, Gpu, Pair

Name = Literal["nvml", "amd-sysfs", "amdsmi", "apple", "none"]


@dataclass(frozen=True, slots=True)
class Reading:
    """GPUs of one backend at one moment."""

    backend: Name
    gpus: tuple[Gpu, ...]
    pairs: tuple[Pair, ...] = ()
    driver: Driver | None = None
    notes: tuple[str, ...] = ()


class DriverUnavailable(GpuError):
    """Raised when a backend cannot be used at all; `code` is NVML's error number, if NVML reported it."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Reader(Protocol):
    """Reader of one vendor's GPUs. Raises DriverUnavailable; a failing GPU is listed with its state."""

    def read(self, *, processes: bool = False, topology: bool = False) -> Reading: ...
