"""Errors of renderers, with the expected value and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable

from paddock.errors import did_you_mean
from paddock.gpu.errors import GpuInputError


def wrong(problem: str, expected: str = "", fix: str = "") -> GpuInputError:
    lines = [problem, *([f"expected: {expected}"] if expected else []), *([f"fix: {fix}"] if fix else [])]
    return GpuInputError("\n    ".join(lines))


def one_of(value: str, allowed: Iterable[str]) -> str:
    """Return the name that was probably meant, else all allowed ones."""
    names = list(allowed)
    return did_you_mean(value, names, f"one of {', '.join(names)}")


def matching(name: str, value: object, pattern: str, expected: str) -> str:
    """Return the value if it is a text of that form. Raises GpuInputError."""
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise wrong(f"{name} is {value!r}", expected)
    return value


def positive(name: str, value: object, most: int | None = None) -> int:
    """Return the value if it is a whole number from 1 to `most`. Raises GpuInputError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or (most is not None and value > most):
        raise wrong(f"{name} is {value!r}", f"a whole number, 1 {'or more' if most is None else f'to {most}'}")
    return value
