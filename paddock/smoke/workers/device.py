"""The torch device of a program: its memory, its clock and its number formats."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

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

    def free_bytes(self) -> int:
        """Return the bytes that a program may still take: of the device, or of the machine for the processor."""
        if self.kind == "cuda":
            return int(torch.cuda.mem_get_info()[0])
        if self.kind == "mps":
            return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

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
    """Return the device. Raises RuntimeError where torch does not have it."""
    if kind == "cuda" and not torch.cuda.is_available():
        built = torch.version.cuda or getattr(torch.version, "hip", None)
        reason = "this torch is built for the processor alone" if built is None else f"it is built for {built}"
        raise RuntimeError(f"torch {torch.__version__} sees no GPU: {reason}")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise RuntimeError(f"torch {torch.__version__} sees no Metal GPU")
    return Device(kind)


def dtype(name: str) -> torch.dtype:
    return {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[name]
