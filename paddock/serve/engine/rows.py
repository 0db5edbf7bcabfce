"""Rows: the answers that one model computes side by side, each of its own prompt and length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paddock.serve.engine.sampling import Draws
from paddock.serve.errors import ServeError


class OutOfMemory(ServeError):
    """The device has no memory for a prompt or a step. The rows are as they were before."""


class InvalidLogits(ServeError):
    """A logit is no finite number: the weights or the device are damaged."""


class Rows(Protocol):
    """Rows of a model, numbered from 0 without gaps. A token is None where the row's logits are no finite numbers."""

    slots: int
    """Most rows."""

    def join(self, ids: Sequence[int], draws: Draws = ()) -> int | None:
        """Read a prompt, append its row and return its first token. Raises OutOfMemory, and appends nothing.

        `draws` has one, or none for the most probable token.
        """

    def decode(self, tokens: Sequence[int], draws: Draws = ()) -> Sequence[int | None]:
        """Return the token after the last one of each row. Raises OutOfMemory, and the step can be tried again.

        `draws` has one for each row, or none for the most probable token of all.
        """

    def leave(self, row: int) -> None:
        """Free a row. The last row takes its number."""


def warm_up(rows: Rows) -> None:
    """Take the memory of all rows, and compute a step of all. Raises OutOfMemory."""
    for _ in range(rows.slots):
        rows.join([0])
    rows.decode([0] * rows.slots)
    for row in reversed(range(rows.slots)):
        rows.leave(row)
