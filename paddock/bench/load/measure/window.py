"""Steady window of a load: the longest time in which the server was as busy as it became."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

STEADY_SHARE = 0.8
"""Part of the peak of concurrency that counts as steady."""
SHORTEST_DIP = 0.05
"""Seconds: a shorter dip is a user's turn between two requests."""
LEAST_PART = 0.2
"""Part of the run below which its longest busy time is not a steady state but a moment."""


@dataclass(frozen=True, slots=True)
class Window:
    """Interval in seconds since the load began."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def holds(self, time: float) -> bool:
        return self.start <= time <= self.end


def peak_concurrency(spans: Iterable[tuple[float, float]]) -> int:
    """Return the most requests that were under way at once."""
    return max((count for _, count in _steps(spans)), default=0)


def steady_window(spans: Sequence[tuple[float, float]], whole: Window) -> Window | None:
    """Return the longest interval of `whole` with a concurrency of at least 0.8 of its peak.

    `spans` are the begin and end of every request, those of the warm-up too. None where the longest such interval is
    less than a fifth of the whole: the load was never steady.
    """
    busy: list[Window] = []
    steps = _steps(spans)
    enough = STEADY_SHARE * max((count for _, count in steps), default=0)
    for (start, count), (end, _) in pairwise(steps):
        if count < enough:
            continue
        if busy and start - busy[-1].end < SHORTEST_DIP:
            busy[-1] = Window(busy[-1].start, end)
        else:
            busy.append(Window(start, end))
    inside = (Window(max(part.start, whole.start), min(part.end, whole.end)) for part in busy)
    longest = max(inside, key=lambda part: part.seconds, default=None)
    return longest if longest and longest.seconds >= LEAST_PART * whole.seconds > 0 else None


def _steps(spans: Iterable[tuple[float, float]]) -> list[tuple[float, int]]:
    """Return the times at which the concurrency changes, each with the concurrency from then on."""
    changes: dict[float, int] = {}
    for begin, end in spans:
        changes[begin] = changes.get(begin, 0) + 1
        changes[end] = changes.get(end, 0) - 1
    count, steps = 0, []
    for time in sorted(changes):
        count += changes[time]
        steps.append((time, count))
    return steps
