"""How a renderer says that something cannot be had, and what to use instead."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from paddock.gpu.errors import GpuInputError


def wrong(problem: str, expected: str = "", fix: str = "") -> GpuInputError:
    lines = [problem, *([f"expected: {expected}"] if expected else []), *([f"fix: {fix}"] if fix else [])]
    return GpuInputError("\n    ".join(lines))


def one_of(value: str, allowed: Iterable[str]) -> str:
    """What was meant, or all that may be said."""
    names = list(allowed)
    folded = {name.casefold(): name for name in names}
    near = get_close_matches(value.casefold(), folded, 1)
    return f"did you mean {folded[near[0]]}?" if near else f"one of {', '.join(names)}"


def matching(name: str, value: object, pattern: str, expected: str) -> str:
    """The value, where it is a text of that form. Raises GpuInputError."""
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise wrong(f"{name} is {value!r}", expected)
    return value


def positive(name: str, value: object, most: int | None = None) -> int:
    """Raises GpuInputError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or (most is not None and value > most):
        raise wrong(f"{name} is {value!r}", f"a whole number, 1 {'or more' if most is None else f'to {most}'}")
    return value
