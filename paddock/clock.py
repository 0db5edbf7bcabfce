"""Today's date, in one place: supports end, facts grow old and exceptions lapse by it."""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime

from paddock.errors import PaddockError

VARIABLE = "PADDOCK_TODAY"


class BadDay(PaddockError):
    """The environment names a day that does not exist."""

    exit_code = 2


def today() -> date:
    """Return the date in UTC, or the one that PADDOCK_TODAY=YYYY-MM-DD names. Raises BadDay."""
    text = os.environ.get(VARIABLE)
    if not text:
        return datetime.now(UTC).date()
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
            return date.fromisoformat(text)
    except ValueError:
        pass  # 2027-02-30
    raise BadDay(
        f"{VARIABLE} is {text[:40]!r}, which is not a date"
        "\n    expected: YYYY-MM-DD, such as 2027-03-28"
        f"\n    fix: give it a date, or unset {VARIABLE} for the date of today"
    )
