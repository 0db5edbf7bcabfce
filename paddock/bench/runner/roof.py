"""The roof of this machine, measured beside the model: the bandwidth of reads and the speed of matrix products."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_READ_BYTES = {"cuda": 2**30, "mps": 2**29, "cpu": 2**28}
"""Bytes of a read: far above any cache."""
_SIZE = {"cuda": 8192, "mps": 4096, "cpu": 1024}
"""Rows and columns of the matrices of a product."""


class Roof:
    """Measures one device. The buffer is kept, so that a probe beside each cell costs milliseconds."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffer = torch.ones(_READ_BYTES[device.type] // 4, device=device)

    @property
    def nbytes(self) -> int:
        """Return the bytes that the buffer takes, which are none of the model's."""
        return int(self._buffer.nbytes)

    def read_gbs(self, repeats: int = 8) -> list[float]:
        """Return GB/s of each pass over the buffer, best last."""
        return sorted(self._buffer.nbytes / self._seconds(self._buffer.sum) / 1e9 for _ in range(repeats))

    def tflops(self, dtype: torch.dtype, repeats: int = 5) -> float:
        """Return the TFLOP/s of the best square matrix product."""
        size = _SIZE[self._device.type]
        a = torch.ones(size, size, dtype=dtype, device=self._device)
        torch.mm(a, a)
        best = min(self._seconds(lambda: torch.mm(a, a)) for _ in range(repeats))
        return 2 * size**3 / best / 1e12

    def _seconds(self, work: Callable[[], object]) -> float:
        self._synchronise()
        start = time.perf_counter()
        work()
        self._synchronise()
        return time.perf_counter() - start

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        elif self._device.type == "mps":
            torch.mps.synchronize()
