"""Times in the headers of answers: the clock of the server that answered."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def answered_at(date: str) -> datetime | None:
    """Return the time in an answer's `Date` header; None where it holds none."""
    try:
        return parsedate_to_datetime(date).astimezone(UTC)
    except ValueError:
        return None
