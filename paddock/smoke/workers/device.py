"""The device of a program: its arrays, its memory and its clock.

Programs are written in the words that numpy and torch share. Numpy's arrays are the CPU's and torch's a GPU's, so
neither is imported before a device is opened.
"""

from __future__ import annotations

import os
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from paddock.smoke.workers.faults import Unusable

Kind = Literal["cuda", "mps", "cpu"]
LIBRARIES: Mapping[Kind, str] = {"cuda": "torch", "mps": "torch", "cpu": "numpy"}
"""What works a device."""
_FORMATS = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "int8": "int8"}

Array = Any
"""An array of numpy or a tensor of torch."""


class ArrayDevice(ABC):
    """A device. `xp` is the library of its arrays, and `place` what its functions are told to make one there."""

    kind: Kind
    xp: Any
    place: Mapping[str, Any]

    def format(self, precision: str) -> Any:
        """Return the library's type of numbers. Raises AttributeError for one that it lacks: numpy has no bf16."""
        return getattr(self.xp, _FORMATS[precision])

    @property
    @abstractmethod
    def processor(self) -> ArrayDevice:
        """The CPU, by the same library."""

    @abstractmethod
    def integers(self, array: Array) -> Array:
        """Return the array as whole numbers of 64 bits; what NaN and infinity become is the library's."""

    @abstractmethod
    def copy(self, target: Array, source: Array) -> None:
        """Copy from array to array; a GPU may still be at it when this returns."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has done its work. Raises RuntimeError where that failed."""

    @abstractmethod
    def memory_bytes(self) -> tuple[int, int]:
        """Return the bytes that a program may still take and all that there are."""

    def seconds(self, work: Callable[[], Any], *, warm_up: int, repeats: int) -> list[float]:
        """Return the seconds of each repeat, by the device's own clock where it has one."""
        for _ in range(warm_up):
            work()
        self.synchronize()
        return [self._wall(work) for _ in range(repeats)]

    def median_seconds(self, work: Callable[[], Any], *, warm_up: int, repeats: int) -> float:
        return statistics.median(self.seconds(work, warm_up=warm_up, repeats=repeats))

    def _wall(self, work: Callable[[], Any]) -> float:
        start = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - start


class Processor(ArrayDevice):
    """The CPU, by numpy."""

    kind = "cpu"
    place: Mapping[str, Any] = {}

    def __init__(self) -> None:
        import numpy

        self.xp = numpy

    @property
    def processor(self) -> ArrayDevice:
        return self

    def integers(self, array: Array) -> Array:
        with self.xp.errstate(invalid="ignore"):
            return array.astype(self.xp.int64)

    def copy(self, target: Array, source: Array) -> None:
        self.xp.copyto(target, source)

    def synchronize(self) -> None:
        pass

    def memory_bytes(self) -> tuple[int, int]:
        return host_memory_bytes()


class TorchDevice(ArrayDevice):
    """A device by torch: `cuda` also stands for AMD's ROCm, as in torch itself."""

    def __init__(self, kind: Kind) -> None:
        import torch

        self.kind, self.xp = kind, torch
        self.place = {"device": kind}

    @property
    def processor(self) -> ArrayDevice:
        return TorchDevice("cpu")

    def integers(self, array: Array) -> Array:
        return array.to(self.xp.int64)

    def copy(self, target: Array, source: Array) -> None:
        target.copy_(source, non_blocking=True)

    def synchronize(self) -> None:
        if self.kind == "cuda":
            self.xp.cuda.synchronize()
        elif self.kind == "mps":
            self.xp.mps.synchronize()

    def memory_bytes(self) -> tuple[int, int]:
        if self.kind == "cuda":
            free, total = self.xp.cuda.mem_get_info()
            return int(free), int(total)
        if self.kind == "mps":
            total = int(self.xp.mps.recommended_max_memory())
            return total - int(self.xp.mps.driver_allocated_memory()), total
        return host_memory_bytes()

    def seconds(self, work: Callable[[], Any], *, warm_up: int, repeats: int) -> list[float]:
        if self.kind != "cuda":
            return super().seconds(work, warm_up=warm_up, repeats=repeats)
        for _ in range(warm_up):
            work()
        self.synchronize()
        event = partial(self.xp.cuda.Event, enable_timing=True)
        events = [(event(), event()) for _ in range(repeats)]
        for start, end in events:
            start.record()
            work()
            end.record()
        self.synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in events]


def host_memory_bytes() -> tuple[int, int]:
    """Return the machine's free memory and all of it."""
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def open_device(kind: Kind) -> ArrayDevice:
    """Return the device, started. Raises Unusable where torch does not have it, and what torch raises."""
    if kind == "cpu":
        return Processor()
    import torch

    if kind == "cuda":
        if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
            raise Unusable(
                f"torch {torch.__version__} is built for the CPU alone",
                "give --python an interpreter whose torch is built for the GPU",
            )
        torch.cuda.init()  # says what is_available() keeps to itself
    if kind == "mps" and not torch.backends.mps.is_available():
        raise Unusable(f"torch {torch.__version__} sees no Metal GPU", "give --python another interpreter with torch")
    # Sums of halves in halves would be rounded in an order that is the kernel's own.
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return TorchDevice(kind)
