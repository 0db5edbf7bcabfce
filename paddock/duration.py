"""Lengths of time on command lines: 30s, 20m or 2h; a bare number is in the flag's own unit."""

from __future__ import annotations

import math
import re
from typing import ClassVar

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FORM = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(_SECONDS)})", re.ASCII)


class NoDuration(ValueError):
    """Text that is not a duration."""

    def __init__(self, value: object, unit: str) -> None:
        super().__init__(f"{value!r} is not a duration\n    expected: 30s, 20m or 2h; a bare number is in {unit}")
        self.value = value


class Seconds(float):
    """Length of time in seconds, read from a number or from text such as `20m`."""

    UNIT: ClassVar[str] = "seconds"
    _IN_SECONDS: ClassVar[float] = 1.0

    def __new__(cls, value: str | float = 0.0) -> Seconds:
        """Raises NoDuration."""
        match = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
        try:
            number = float(match[1]) * _SECONDS[match[2]] / cls._IN_SECONDS if match else float(value)
            if math.isnan(number):
                raise ValueError
        except ValueError:
            raise NoDuration(value, cls.UNIT) from None
        return super().__new__(cls, number)

    def __str__(self) -> str:
        seconds = self * self._IN_SECONDS
        unit = next((unit for unit in ("h", "m") if seconds and seconds % _SECONDS[unit] == 0), "s")
        return f"{seconds / _SECONDS[unit]:g}{unit}"


class Minutes(Seconds):
    """Length of time in minutes."""

    UNIT = "minutes"
    _IN_SECONDS = 60.0


class Hours(Seconds):
    """Length of time in hours."""

    UNIT = "hours"
    _IN_SECONDS = 3600.0
