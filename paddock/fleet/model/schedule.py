"""Cron schedules of warm capacity. `cronsim` reads them; only the five numeric fields that every CronJob takes pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_PART = r"(\*|\d{1,2}(-\d{1,2})?)(/\d{1,2})?"
_FIELD = rf"{_PART}(,{_PART})*"
PATTERN = rf"^{_FIELD} {_FIELD} {_FIELD} {_FIELD} {_FIELD}$"


def checked(expression: str) -> str:
    """Return `expression` if it is a cron schedule. Raises ValueError."""
    try:
        valid = re.fullmatch(PATTERN, expression) is not None and CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError:
        valid = False
    if not valid:
        raise ValueError(
            f'"{expression}" is not a cron schedule; write minute hour day month weekday, such as "0 8 * * 1-5"'
        )
    return expression


def occurrences(expression: str, time_zone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """Times in UTC at which the schedule fires in its own time zone, from `start` until before `end`."""
    local = (start - timedelta(seconds=1)).astimezone(ZoneInfo(time_zone))  # CronSim begins after its start
    return takewhile(lambda time: time < end, (time.astimezone(UTC) for time in CronSim(expression, local)))
