"""How many idle runners a scale set keeps over time, from `min` and its schedule of warm capacity."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from paddock.fleet.model.runner import Runner, Warm

_DAYS = 28
_MONDAY = date(2026, 6, 1)
_MINUTES = 24 * 60


def mean_idle(runner: Runner) -> float:
    """Idle runners on average over four weeks.

    Each entry of the schedule holds until the next one; before the first it is the last that holds. `min` is where a
    scale set without a schedule stays. Time zones only shift entries by hours, and are left out.
    """
    events = sorted(event for entry in runner.warm for event in _times(entry))
    if not events:
        return float(runner.min)
    span = _DAYS * _MINUTES
    minutes = 0
    for (start, level), (end, _) in zip(events, [*events[1:], (events[0][0] + span, 0)], strict=True):
        minutes += max(level, 0) * (end - start)
    return minutes / span


def _times(entry: Warm) -> list[tuple[int, int]]:
    """(minute of the four weeks, idle runners from then on) each time the schedule fires."""
    minute, hour, day, month, weekday = entry.at.split()
    minutes, hours = _values(minute, 0, 59), _values(hour, 0, 23)
    days, months = _values(day, 1, 31), _values(month, 1, 12)
    weekdays = {value % 7 for value in _values(weekday, 0, 7)}
    found = []
    for index in range(_DAYS):
        on = _MONDAY + timedelta(days=index)
        # Cron: with both restricted, either one will do.
        by_date, by_weekday = on.day in days, on.isoweekday() % 7 in weekdays
        due = by_date and by_weekday if "*" in (day[:1], weekday[:1]) else by_date or by_weekday
        if on.month in months and due:
            found += [(index * _MINUTES + h * 60 + m, entry.min) for h in hours for m in minutes]
    return found


def _values(field: str, low: int, high: int) -> Sequence[int]:
    values: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start = low if span == "*" else int(first)
        end = high if span == "*" or (step and not last) else int(last or first)
        values |= set(range(start, end + 1, int(step or 1)))
    return sorted(values)
