"""The roof of the CPU, by numpy alone: bandwidth of reads, and speed of GEMMs."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

from paddock.bench.engines.door import Timer

_READ_BYTES = 2**28
"""Bytes of a read: far above any cache."""
_READS = 4
_SLICES = 8
"""Slices of a read for each thread: one that waits for its CPU holds the others up by a slice alone."""
_SIZE = 1024
"""Rows and columns of the matrices of a product."""
_PRODUCTS = 5


class ProcessorRoof:
    """Measures the CPU with so many threads. Its buffer is kept: a probe with each cell takes milliseconds."""

    def __init__(self, threads: int) -> None:
        import numpy as np

        buffer = np.ones(_READ_BYTES // 8, dtype=np.uint64)
        self.nbytes = int(buffer.nbytes)
        """Bytes of the buffer, which are not the model's."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="roof")
        self._slices = np.array_split(buffer, threads * _SLICES)
        self._reduce = np.bitwise_or.reduce  # as fast as numpy reads: it adds nothing to what memory takes

    def read_gbs(self) -> list[float]:
        """Return GB/s of each pass over the buffer, best last."""
        self._read()
        return sorted(self.nbytes / taken / 1e9 for taken in Timer().timed(self._read, _READS))

    def tflops(self, dtype: str) -> float:
        """Return the TFLOP/s of the best product of two square fp32 matrices of random numbers: numpy has no other.

        The threads are those of numpy's BLAS.
        """
        import numpy as np

        rng = np.random.default_rng(0)
        a, b = (rng.random((_SIZE, _SIZE), dtype=np.float32) - np.float32(0.5) for _ in range(2))
        a @ b
        return 2 * _SIZE**3 / min(Timer().timed(lambda: a @ b, _PRODUCTS)) / 1e12

    def _read(self) -> None:
        for _ in self._pool.map(self._reduce, self._slices):
            pass


class UnknownRoof:
    """The roof of a device for which nothing here measures one."""

    nbytes = 0

    def read_gbs(self) -> list[float]:
        """Return no pass."""
        return []

    def tflops(self, dtype: str) -> float:
        """Return NaN: it is not known."""
        return math.nan
