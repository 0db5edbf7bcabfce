"""Errors whose text a user reads, and the hints in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

Key = tuple[str | int, ...]
"""Path of a value in a document: `("pools", "t4", "instances", 0)`."""


class PaddockError(Exception):
    """An operation failed. The text says what and how to go on; the console program prints it without a traceback."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a document: its place, what was expected there and how to fix it."""

    key: Key
    message: str
    expected: str = ""
    fix: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        head = _one_line(": ".join(part for part in (place, dotted(self.key), self.message) if part))
        tail = [
            f"\n    {name}: {_one_line(text)}"
            for name, text in (("expected", self.expected), ("fix", self.fix))
            if text
        ]
        return head + "".join(tail)


def _one_line(text: str) -> str:
    """Text from a file on one short line, without the characters that steer a terminal."""
    printable = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:601])
    return printable if len(printable) <= 600 else f"{printable[:597]}..."


def dotted(key: Key) -> str:
    """`("paddock:fleet", "runners", "gpu", "labels", 0)` -> `paddock:fleet.runners.gpu.labels[0]`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name most similar to `word`, if any; case and separators do not count."""
    import difflib  # only a wrong name pays for it

    names_by_form = {_plain(name): name for name in names}
    near = difflib.get_close_matches(_plain(word), names_by_form, n=1, cutoff=cutoff)
    return names_by_form[near[0]] if near else None


def did_you_mean(word: str, names: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return a hint with the name nearest to `word`, and `otherwise` when none is near."""
    near = nearest(word, names, cutoff)
    return f"did you mean {near}?" if near else otherwise


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())
