"""The torch device of a program: its memory, its clock and its number formats."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from paddock.smoke.workers.faults import Unusable

Kind = Literal["cuda", "mps", "cpu"]


@dataclass(frozen=True, slots=True)
class Device:
    """A device: `cuda` also stands for AMD's ROCm, as in torch itself."""

    kind: Kind

    @property
    def torch(self) -> torch.device:
        return torch.device(self.kind)

    def synchronize(self) -> None:
        """Wait until the device has done its work. Raises RuntimeError where that failed."""
        if self.kind == "cuda":
            torch.cuda.synchronize()
        elif self.kind == "mps":
            torch.mps.synchronize()

    def memory_bytes(self) -> tuple[int, int]:
        """Return the bytes that a program may still take and all that there are: the processor has the machine's."""
        if self.kind == "cuda":
            free, total = torch.cuda.mem_get_info()
            return int(free), int(total)
        if self.kind == "mps":
            total = int(torch.mps.recommended_max_memory())
            return total - int(torch.mps.driver_allocated_memory()), total
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page

    def seconds(self, work: Callable[[], Any], *, warm_up: int, repeats: int) -> list[float]:
        """Return the seconds of each repeat, by the device's own clock where it has one."""
        for _ in range(warm_up):
            work()
        self.synchronize()
        if self.kind != "cuda":
            return [self._wall(work) for _ in range(repeats)]
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for start, end in events:
            start.record()
            work()
            end.record()
        self.synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in events]

    def median_seconds(self, work: Callable[[], Any], *, warm_up: int, repeats: int) -> float:
        return statistics.median(self.seconds(work, warm_up=warm_up, repeats=repeats))

    def _wall(self, work: Callable[[], Any]) -> float:
        start = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - start


def open_device(kind: Kind) -> Device:
    """Return the device, started. Raises Unusable where torch does not have it, and what torch raises."""
    if kind == "cuda":
        if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
            raise Unusable(
                f"torch {torch.__version__} is built for the processor alone",
                "give --python an interpreter whose torch is built for the GPU",
            )
        torch.cuda.init()  # says what is_available() keeps to itself
    if kind == "mps" and not torch.backends.mps.is_available():
        raise Unusable(f"torch {torch.__version__} sees no Metal GPU", "give --python another interpreter with torch")
    # Sums of halves in halves would be rounded in an order that is the kernel's own.
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return Device(kind)


def dtype(name: str) -> torch.dtype:
    return {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[name]
