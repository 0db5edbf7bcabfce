"""Text of an answer while its tokens come: whole characters, and nothing of a text that ends it.

A token is decoded with those just before it, never with the whole answer, whose cost would grow with every token.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddock.serve.engine.tokens import Tokens

_PARTIAL = "\ufffd"
_MOST_PARTIAL = 8
"""Tokens that are awaited for one character: no character has more bytes, so that these are no text."""


class AnswerText:
    """Text of one answer. `stopped` is True once one of the texts in `stop` has come."""

    def __init__(self, tokens: Tokens, stop: Sequence[str] = ()) -> None:
        self._tokens, self._stop = tokens, stop
        self._ids: list[int] = []
        self._shown = 0
        """Number of the ids whose text is known; the others are part of a character."""
        self._held = ""
        self.stopped = False

    def add(self, id: int | None, last: bool = False) -> str:
        """Return the text that a token adds; None is a token without a text. After the last one all has come."""
        if id is not None and id not in self._tokens.hidden:
            self._ids.append(id)
        return self._until_stop(self._decoded(last), last)

    def _decoded(self, last: bool) -> str:
        before, whole = self._tokens.decode(self._ids[: self._shown]), self._tokens.decode(self._ids)
        new = whole[len(before) :]
        if len(self._ids) - self._shown <= _MOST_PARTIAL and not last and (not new or whole.endswith(_PARTIAL)):
            return ""
        # The newest ids stay, since the first token of a text is decoded otherwise, often without its space.
        self._ids = self._ids[self._shown :]
        self._shown = len(self._ids)
        return new

    def _until_stop(self, new: str, last: bool) -> str:
        if not self._stop or (not new and not last):
            return new
        text = self._held + new
        ends = [(start + len(stop), start) for stop in self._stop if (start := text.find(stop)) >= 0]
        if ends:
            self.stopped = True
            return text[: min(ends)[1]]
        # What may be the beginning of a stop is shown once it is not.
        held = 0 if last else max(_overlap(text, stop) for stop in self._stop)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text are the beginning of a stop."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
