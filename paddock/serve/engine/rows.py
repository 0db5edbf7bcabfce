"""Rows: the answers that one model computes side by side, each of its own prompt and length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from paddock.bench.engine.protocol import Engine
from paddock.serve.errors import ServeError


class OutOfMemory(ServeError):
    """The device has no memory for a prompt or a step. The rows are as they were before."""


class InvalidLogits(ServeError):
    """A logit is no finite number: the weights or the device are damaged."""


class Rows(Protocol):
    """Rows of a model, numbered from 0 without gaps. A token is None where the row's logits are no finite numbers."""

    slots: int
    """Most rows."""

    def join(self, ids: Sequence[int]) -> int | None:
        """Read a prompt, append its row and return its first token. Raises OutOfMemory, and appends nothing."""

    def decode(self) -> list[int | None]:
        """Return the next token of every row. Raises OutOfMemory, and a further call tries the same step again."""

    def leave(self, row: int) -> None:
        """Free a row. The last row takes its number."""


class OneRow:
    """The one row of an engine that has no others."""

    slots = 1

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._token: Any = None

    def join(self, ids: Sequence[int]) -> int | None:
        import torch

        self._token = self._engine.prefill(torch.tensor([list(ids)]))
        return int(self._token[0, 0])

    def decode(self) -> list[int | None]:
        self._token = self._engine.decode(self._token)
        return [int(self._token[0, 0])]

    def leave(self, row: int) -> None:
        """Do nothing: the next prompt begins with an empty cache."""
