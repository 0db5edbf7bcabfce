"""The roof of this machine, measured beside the model: bandwidth of reads, speed of matrix products, time of sums."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import distributed

_READ_BYTES = {"cuda": 2**32, "mps": 2**29, "cpu": 2**28}
"""Bytes of a read: far above any cache. Of a GPU's memory less is read where less is free."""
_LEAST_READ = 2**28
_READS = {"cuda": 10, "mps": 4, "cpu": 4}
_SIZE = {"cuda": 8192, "mps": 4096, "cpu": 1024}
"""Rows and columns of the matrices of a product."""
_PRODUCTS = {"cuda": 10, "mps": 5, "cpu": 5}
_SUMS = 20


class Roof:
    """Measures one device. On the processor the buffer is kept, so that a probe beside each cell costs milliseconds."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffer = None if device.type == "cuda" else torch.ones(_READ_BYTES[device.type] // 4, device=device)

    @property
    def nbytes(self) -> int:
        """Return the bytes that the buffer takes, which are none of the model's."""
        return int(self._buffer.nbytes) if self._buffer is not None else 0

    def read_gbs(self) -> list[float]:
        """Return GB/s of each pass over the buffer, best last; none where a GPU has too little memory left for one."""
        buffer = self._buffer if self._buffer is not None else _largest_buffer(self._device)
        if buffer is None:
            return []
        buffer.sum()
        seconds = self._seconds(buffer.sum, _READS[self._device.type])
        return sorted(buffer.nbytes / taken / 1e9 for taken in seconds)

    def tflops(self, dtype: torch.dtype) -> float:
        """Return the TFLOP/s of the best square matrix product, of random numbers: zeros and ones take less power."""
        size, kind = _SIZE[self._device.type], self._device.type
        a, b = (torch.rand(size, size, device=self._device).sub_(0.5).to(dtype) for _ in range(2))
        torch.mm(a, b)
        return 2 * size**3 / min(self._seconds(lambda: torch.mm(a, b), _PRODUCTS[kind])) / 1e12

    def sum_seconds(self, rows: int, columns: int, dtype: torch.dtype) -> float:
        """Return the median seconds of a sum of [rows, columns] over the ranks; 0 for a single one."""
        if not distributed.is_initialized():
            return 0.0
        x = torch.zeros(rows, columns, dtype=dtype, device=self._device)
        distributed.all_reduce(x)
        return statistics.median(self._seconds(lambda: distributed.all_reduce(x), _SUMS))

    def _seconds(self, work: Callable[[], object], repeats: int) -> list[float]:
        """Return the seconds of each repeat: on a GPU by its own clock, launched without waiting in between."""
        if self._device.type == "cuda":
            return _timed_by_events(work, repeats)
        taken = []
        for _ in range(repeats):
            self._synchronise()
            start = time.perf_counter()
            work()
            self._synchronise()
            taken.append(time.perf_counter() - start)
        return taken

    def _synchronise(self) -> None:
        if self._device.type == "mps":
            torch.mps.synchronize()


def _timed_by_events(work: Callable[[], object], repeats: int) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) / 1000 for before, after in pairwise(events)]


def _largest_buffer(device: torch.device) -> torch.Tensor | None:
    """Return a buffer of as many bytes as are read, or of what is free: a model takes most of the memory."""
    size = _READ_BYTES[device.type]
    while size >= _LEAST_READ:
        try:
            return torch.ones(size // 4, device=device)
        except torch.OutOfMemoryError:
            size //= 2
    return None
