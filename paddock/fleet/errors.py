"""Problems of a stack file, all of them in one error."""

from __future__ import annotations

from collections.abc import Iterable

from paddock import errors
from paddock.errors import Key, PaddockError, Problem, dotted

__all__ = ["EditError", "FleetError", "Key", "Problem", "did_you_mean", "dotted", "without_config"]

MOST_SHOWN = 40
"""Problems in the text of an error: more than a screen of them has one cause."""


class FleetError(PaddockError):
    """The stack file does not describe a fleet. Holds every problem found, in file order."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        more = [f"... and {len(self.problems) - MOST_SHOWN} more"] if len(self.problems) > MOST_SHOWN else []
        super().__init__("\n".join([*map(str, self.problems[:MOST_SHOWN]), *more]))


class EditError(PaddockError):
    """A stack file cannot be edited as asked; it is as it was."""

    exit_code = 2


def without_config(key: Key) -> Key:
    """A stack file's key without the `config` that all share."""
    return key[1:] if key[:1] == ("config",) and len(key) > 1 else key


def did_you_mean(word: str, candidates: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint with the nearest candidate in the quotes of YAML, or an empty string."""
    near = errors.nearest(word, candidates, cutoff)
    return f'did you mean "{near}"?' if near else ""
