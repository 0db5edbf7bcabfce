"""Time of this machine's processors that other programs took meanwhile."""

from __future__ import annotations

import time


class Others:
    """Watches from when it is made. Only the processors of the whole machine are known, also in a container."""

    def __init__(self) -> None:
        self._start, self._before = time.monotonic(), _seconds()

    def part(self) -> float | None:
        """Return the part of all processors' time that others took; None where the system does not say."""
        import psutil

        now, before = _seconds(), self._before
        count: int | None = psutil.cpu_count()
        taken = time.monotonic() - self._start
        if now is None or before is None or not count or not taken:
            return None
        return min(1.0, max(0.0, now - before) / (taken * count))


def _seconds() -> float | None:
    """Return the seconds that all processors have worked for others than this process."""
    import psutil

    try:
        times, own = psutil.cpu_times(), psutil.Process().cpu_times()
    except (psutil.Error, OSError, RuntimeError, ValueError):
        return None
    waiting = ("idle", "iowait", "guest", "guest_nice")  # guests are in user and nice already
    busy: float = sum(float(value) for name, value in times._asdict().items() if name not in waiting)
    return busy - float(own.user) - float(own.system)
