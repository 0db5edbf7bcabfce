"""Problems of a stack file: where each is, what is expected there, how to fix it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

Key = tuple[str | int, ...]
"""Where in the stack file: `("pools", "t4", "instances", 0)`, relative to `paddock:fleet`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where it is, what is expected and how to fix it."""

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
    """Return text from a file without control characters and at most 600 characters long."""
    printable = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:601])
    return printable if len(printable) <= 600 else f"{printable[:597]}..."


MOST_SHOWN = 40
"""Problems in the text of an error: more than a screen of them has one cause."""


class FleetError(Exception):
    """The stack file does not describe a fleet. Holds every problem found, in file order."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        more = [f"... and {len(self.problems) - MOST_SHOWN} more"] if len(self.problems) > MOST_SHOWN else []
        super().__init__("\n".join([*map(str, self.problems[:MOST_SHOWN]), *more]))


def without_config(key: Key) -> Key:
    """A stack file's key without the `config` that all share."""
    return key[1:] if key[:1] == ("config",) and len(key) > 1 else key


def dotted(key: Key) -> str:
    """`("paddock:fleet", "runners", "gpu", "labels", 0)` -> `paddock:fleet.runners.gpu.labels[0]`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def did_you_mean(word: str, candidates: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint naming the nearest candidate, or an empty string. `max_pods` is near `maxPods`."""
    plain = {re.sub(r"[-_ ]", "", name.lower()): name for name in candidates}
    near = difflib.get_close_matches(re.sub(r"[-_ ]", "", word.lower()), plain, n=1, cutoff=cutoff)
    return f'did you mean "{plain[near[0]]}"?' if near else ""
