"""The roof of a torch device, measured with the model: bandwidth of reads, speed of GEMMs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch

from paddock.bench.engines.door import Timer

_READ_BYTES = {"cuda": 2**32, "mps": 2**29, "cpu": 2**28}
"""Bytes of a read: far above any cache. Of a GPU's memory less is read where less is free."""
_LEAST_READ = 2**28
_READS = {"cuda": 10, "mps": 4, "cpu": 4}
_SIZE = {"cuda": 8192, "mps": 4096, "cpu": 1024}
"""Rows and columns of the matrices of a product."""
_PRODUCTS = {"cuda": 10, "mps": 5, "cpu": 5}
_MATRIX = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class TorchRoof:
    """Measures one device. On the CPU the buffer is kept, so that a probe with each cell costs milliseconds."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffer = None if device.type == "cuda" else torch.ones(_READ_BYTES[device.type] // 4, device=device)

    @property
    def nbytes(self) -> int:
        """Return the bytes that the buffer takes, which are not the model's."""
        return int(self._buffer.nbytes) if self._buffer is not None else 0

    def read_gbs(self) -> list[float]:
        """Return GB/s of each pass over the buffer, best last; none where a GPU has too little memory left for one."""
        buffer = self._buffer if self._buffer is not None else _largest_buffer(self._device)
        if buffer is None:
            return []
        buffer.sum()
        seconds = self._seconds(buffer.sum, _READS[self._device.type])
        return sorted(buffer.nbytes / taken / 1e9 for taken in seconds)

    def tflops(self, dtype: str) -> float:
        """Return the TFLOP/s of the best square product, of random numbers: zeros and ones take less power."""
        size, kind = _SIZE[self._device.type], self._device.type
        a, b = (torch.rand(size, size, device=self._device).sub_(0.5) for _ in range(2))
        if dtype == "fp8":
            a, b, one = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), torch.ones((), device=self._device)

            def product() -> object:
                return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        else:
            a, b = a.to(_MATRIX[dtype]), b.to(_MATRIX[dtype])

            def product() -> object:
                return torch.mm(a, b)

        product()
        return 2 * size**3 / min(self._seconds(product, _PRODUCTS[kind])) / 1e12

    def _seconds(self, work: Callable[[], object], repeats: int) -> list[float]:
        """Return the seconds of each repeat: on a GPU by its own clock, launched without waiting in between."""
        timer = CudaTimer() if self._device.type == "cuda" else Timer(self._synchronise)
        return timer.timed(work, repeats)

    def _synchronise(self) -> None:
        if self._device.type == "mps":
            torch.mps.synchronize()


def _largest_buffer(device: torch.device) -> torch.Tensor | None:
    """Return a buffer of as many bytes as are read, or of what is free: a model takes most of the memory."""
    size = _READ_BYTES[device.type]
    while size >= _LEAST_READ:
        try:
            return torch.ones(size // 4, device=device)
        except torch.OutOfMemoryError:
            size //= 2
    return None


class CudaTimer(Timer):
    """Seconds of steps by events on the GPU's stream: the loop never waits for the GPU."""

    def start(self, steps: int) -> None:
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        self._count = 1
        torch.cuda.synchronize()
        self._events[0].record()

    def wait(self) -> None:
        """Do nothing: the next step is launched while this one runs."""

    def mark(self) -> None:
        self._events[self._count].record()
        self._count += 1

    def finish(self) -> list[float]:
        torch.cuda.synchronize()
        events = self._events[: self._count]
        return [before.elapsed_time(after) / 1000 for before, after in pairwise(events)]
