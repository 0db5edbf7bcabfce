"""Idle runners of a scale set over time, from `min` and its schedule of warm capacity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from paddock.fleet.model.runner import Runner
from paddock.fleet.model.schedule import occurrences

_START = datetime(2026, 6, 1, tzinfo=UTC)
_END = _START + timedelta(days=28)


def mean_idle(runner: Runner) -> float:
    """Return the mean number of idle runners over four weeks.

    Each entry of the schedule holds until the next one; before the first it is the last that holds. `min` is where a
    scale set without a schedule stays.
    """
    events = sorted(
        (time, entry.min) for entry in runner.warm for time in occurrences(entry.at, entry.time_zone, _START, _END)
    )
    if not events:
        return float(runner.min)
    ends = [time for time, _ in events[1:]] + [events[0][0] + (_END - _START)]
    return sum(
        max(level, 0) * ((end - start) / (_END - _START)) for (start, level), end in zip(events, ends, strict=True)
    )
