"""One small protocol, and one module for each thing that knows of GPUs: NVML, amdgpu's sysfs, macOS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from paddock.gpu.errors import GpuError
from paddock.gpu.model import Driver, Gpu, Pair

Name = Literal["nvml", "amd-sysfs", "amdsmi", "apple", "none"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a backend knows at one moment."""

    backend: Name
    gpus: tuple[Gpu, ...]
    pairs: tuple[Pair, ...] = ()
    driver: Driver | None = None
    notes: tuple[str, ...] = ()


class Unavailable(GpuError):
    """The backend cannot be asked at all. `code` is NVML's number, where it was NVML that said so."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Reader(Protocol):
    """Raises Unavailable; a GPU that does not answer is in the reading, with a state that says so."""

    def read(self, *, processes: bool = False, topology: bool = False) -> Reading: ...
