"""Reads of the GPUs in the background while something else works them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paddock.gpu.errors import GpuError


@contextmanager
def watching(*watches: tuple[float, Callable[[], None]]) -> Iterator[None]:
    """Call each function again and again, so many seconds apart, until the block ends.

    A GpuError ends the calls of its function: the driver is lost.
    """
    end = threading.Event()
    # A driver that hangs must not keep this process.
    threads = [threading.Thread(target=_repeat, args=(end, *watch), daemon=True) for watch in watches]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join(2.0)


def _repeat(end: threading.Event, seconds: float, work: Callable[[], None]) -> None:
    while not end.wait(seconds):
        try:
            work()
        except GpuError:
            return
