"""Errors whose text a user reads, and the hints in them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

Key = tuple[str | int, ...]
"""Path of a value in a document: `("pools", "t4", "instances", 0)`."""


BUG, INTERRUPTED = 70, 130
"""Exit codes, as in sysexits.h and the shell."""


class PaddockError(Exception):
    """An operation failed. The text says what, and how to continue; the console program prints no traceback."""

    exit_code = 1


class Interrupted(PaddockError):
    """The user pressed Ctrl-C. The text says what stays and how to continue."""

    exit_code = INTERRUPTED


def program() -> str:
    """Return the name that the user called: `./inv` in a checkout, else `paddock`."""
    return os.environ.get("PADDOCK_PROGRAM") or "paddock"


def missing_module(error: ModuleNotFoundError) -> str:
    """Explain that the environment lacks a package, and how to get it."""
    # ./inv keeps what it installed there; another environment is its owner's to repair.
    made_by_inv = os.path.isdir(os.path.join(sys.prefix, "installed"))
    fix = (
        f"delete {sys.prefix} and run ./inv again, which recreates it" if made_by_inv else "install paddock again there"
    )
    return f"the environment {sys.prefix} has no module {error.name}\n    fix: {fix}"


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
        head = one_line(": ".join(part for part in (place, dotted(self.key), self.message) if part))
        tail = [
            f"\n    {name}: {one_line(text)}" for name, text in (("expected", self.expected), ("fix", self.fix)) if text
        ]
        return head + "".join(tail)


def one_line(text: str) -> str:
    """Return others' text on one short line."""
    line = re.sub("[\\n\\t]", lambda char: repr(char[0])[1:-1], printable(text[:601]))
    return line if len(line) <= 600 else f"{line[:597]}..."


UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f]"
)
"""Characters that steer a terminal, turn the direction of a line, or hide in it. Line breaks and tabs are not among
them."""


def printable(text: str) -> str:
    """Return the text with an escape, such as `\\x1b`, for each character that steers a terminal or hides in a line."""
    return UNPRINTABLE.sub(lambda char: repr(char[0])[1:-1], text)


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


def did_you_mean(word: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return a hint with the name nearest to `word`, and `otherwise` when none is near."""
    near = nearest(word, names)
    return f"did you mean {near}?" if near else otherwise


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())
