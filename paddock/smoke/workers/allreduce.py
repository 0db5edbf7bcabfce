"""All-reduce over all devices of a machine: a rank for each, which sum an array of theirs and then all have the sum."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from paddock.smoke.workers.device import Array, ArrayDevice, Kind, open_device

_PART = 0.4
"""Part of the free memory that the message may take, next to a comparison of the same size."""
_BUDGET = 30.0
"""Seconds for all sums that are timed."""
_WARM_UP = 3


class Rank(Protocol):
    """One of the ranks that sum: its number, and how many there are."""

    number: int
    ranks: int

    def meet(self) -> None:
        """Wait for all ranks."""

    def least(self, value: int) -> int:
        """Return the least value of all ranks."""

    def sum(self, values: Array) -> None:
        """Put the sum of all ranks' arrays into the array of each."""


def run(device: Kind, ranks: int, size: int, repeats: int) -> dict[str, Any]:
    """All-reduce at most `size` bytes over `ranks`: GPUs by NCCL, a process each; the CPU's threads in its memory.

    Bus bandwidth is bytes/seconds x 2(n-1)/n, as nccl-tests count it (PERFORMANCE.md).
    """
    opened = open_device(device)
    if device == "cpu":
        results = in_threads(opened, ranks, size, repeats)
    else:
        from paddock.smoke.workers.torch_ranks import in_processes

        results = in_processes(sum_up, device, ranks, size, repeats)
    for result in results:
        if "seconds" not in result:
            return result
    seconds, sent = max(result["seconds"] for result in results), results[0]["bytes"]
    return {
        "ranks": ranks,
        "bytes": sent,
        "busbw_gbs": sent / seconds * 2 * (ranks - 1) / ranks / 1e9,
        "wrong": sum(result["wrong"] for result in results),
    }


def sum_up(device: ArrayDevice, rank: Rank, size: int, repeats: int) -> dict[str, Any]:
    """Return the seconds of one all-reduce, its bytes, and the numbers that came out wrong, as this rank sees them."""
    words = rank.least(min(size, int(device.memory_bytes()[0] * _PART))) // 4
    values = device.xp.empty(words, dtype=device.xp.float32, **device.place)
    wrong = _wrong(values, rank)
    values[:] = 0
    _seconds(device, values, rank, _WARM_UP)
    once = _seconds(device, values, rank, 1)
    repeats = max(1, min(repeats, rank.least(int(_BUDGET / once))))
    seconds = _seconds(device, values, rank, repeats)
    return {"seconds": seconds, "bytes": words * 4, "wrong": wrong + _wrong(values, rank)}


def _seconds(device: ArrayDevice, values: Array, rank: Rank, repeats: int) -> float:
    """Return the seconds of one sum of many, one behind the other, so that no start counts."""
    device.synchronize()
    rank.meet()
    start = time.perf_counter()
    for _ in range(repeats):
        rank.sum(values)
    device.synchronize()
    return (time.perf_counter() - start) / repeats


def _wrong(values: Array, rank: Rank) -> int:
    values[:] = rank.number + 1
    rank.sum(values)
    return int((values != rank.ranks * (rank.ranks + 1) / 2).sum())


class Thread:
    """A rank that is a thread of this process: it sums its part of all arrays, and puts it into all of them."""

    def __init__(self, number: int, barrier: threading.Barrier, shown: list[Any]) -> None:
        self.number, self.ranks = number, len(shown)
        self._barrier, self._shown = barrier, shown

    def meet(self) -> None:
        self._barrier.wait()

    def least(self, value: int) -> int:
        return int(min(self._all(value)))

    def sum(self, values: Array) -> None:
        first, end = (len(values) * number // self.ranks for number in (self.number, self.number + 1))
        every = [array[first:end] for array in self._all(values)]
        total = sum(every)
        for part in every:
            part[:] = total
        self.meet()

    def _all(self, value: Any) -> list[Any]:
        self._shown[self.number] = value
        self.meet()
        every = list(self._shown)
        self.meet()
        return every


def in_threads(device: ArrayDevice, ranks: int, size: int, repeats: int) -> list[dict[str, Any]]:
    """Return the result of each rank. Raises what the first of them raised that did not only miss another."""
    barrier = threading.Barrier(ranks)
    shown: list[Any] = [None] * ranks

    def work(number: int) -> dict[str, Any]:
        try:
            return sum_up(device, Thread(number, barrier, shown), size, repeats)
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(work, number) for number in range(ranks)]
    errors = [error for future in futures if (error := future.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]
