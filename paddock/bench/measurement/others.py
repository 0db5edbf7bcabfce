"""Time of this machine's CPUs that other programs took during a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Others:
    """Adds up the blocks that it watches. Only the CPUs of the whole machine are known, also in a container."""

    def __init__(self) -> None:
        self._watched = self._taken = 0.0
        self._known = True

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch a block."""
        start, before = time.monotonic(), _seconds()
        try:
            yield
        finally:
            after = _seconds()
            if before is None or after is None:
                self._known = False
            else:
                self._watched += time.monotonic() - start
                self._taken += max(0.0, after - before)

    def part(self) -> float | None:
        """Return the part of all CPUs' time that others took; None where the system does not say."""
        import psutil

        count: int | None = psutil.cpu_count()
        if not self._known or not count or not self._watched:
            return None
        return min(1.0, self._taken / (self._watched * count))


def _seconds() -> float | None:
    """Return the seconds that all CPUs have worked for others than this process."""
    import psutil

    try:
        times, own = psutil.cpu_times(), psutil.Process().cpu_times()
    except (psutil.Error, OSError, RuntimeError, ValueError):
        return None
    waiting = ("idle", "iowait", "guest", "guest_nice")  # guests are in user and nice already
    busy: float = sum(float(value) for name, value in times._asdict().items() if name not in waiting)
    return busy - float(own.user) - float(own.system)
