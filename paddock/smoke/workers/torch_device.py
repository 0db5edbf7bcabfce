"""A GPU by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paddock.smoke.workers.device import Array, Device, Kind, host_memory_bytes
from paddock.smoke.workers.faults import Unusable


class TorchDevice(Device):
    """A device of torch: `cuda` also stands for AMD's ROCm, as in torch itself."""

    xp = torch

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.place = {"device": kind}

    @property
    def processor(self) -> Device:
        return TorchDevice("cpu")

    def integers(self, array: Array) -> Array:
        return array.to(torch.int64)

    def copy(self, target: Array, source: Array) -> None:
        target.copy_(source, non_blocking=True)

    def synchronize(self) -> None:
        if self.kind == "cuda":
            torch.cuda.synchronize()
        elif self.kind == "mps":
            torch.mps.synchronize()

    def memory_bytes(self) -> tuple[int, int]:
        if self.kind == "cuda":
            free, total = torch.cuda.mem_get_info()
            return int(free), int(total)
        if self.kind == "mps":
            total = int(torch.mps.recommended_max_memory())
            return total - int(torch.mps.driver_allocated_memory()), total
        return host_memory_bytes()

    def seconds(self, work: Callable[[], Any], *, warm_up: int, repeats: int) -> list[float]:
        if self.kind != "cuda":
            return super().seconds(work, warm_up=warm_up, repeats=repeats)
        for _ in range(warm_up):
            work()
        self.synchronize()
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for start, end in events:
            start.record()
            work()
            end.record()
        self.synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in events]


def open_gpu(kind: Kind) -> TorchDevice:
    """Return the GPU, started. Raises Unusable where torch does not have it, and what torch raises."""
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
    return TorchDevice(kind)
