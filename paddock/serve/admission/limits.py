"""Limits of the gateway: the size of a request and of an answer, the queue of an instance, and what a user may ask."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


class RequestError(Exception):
    """A request that cannot be served; `status` is HTTP's, `code` OpenAI's. `retry_s` is when to ask again."""

    def __init__(
        self, message: str, status: int = 400, code: str = "invalid_request_error", param: str = "", retry_s: int = 1
    ) -> None:
        super().__init__(message, status, code, param, retry_s)  # all of it, so that it passes whole between processes
        self.message, self.status, self.code, self.param, self.retry_s = message, status, code, param, retry_s

    def __str__(self) -> str:
        return self.message

    def document(self) -> dict[str, Any]:
        """Return the error as OpenAI's clients read it."""
        return {"error": {"message": str(self), "type": self.code, "param": self.param or None, "code": self.code}}


_MINUTE = 60.0
MIB = 2**20
MOST_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one gateway; None: no limit. `tokens` are those of one answer.

    Seconds are those in which a body, or the next piece, must come.
    """

    queue: int | None = None
    user_in_flight: int | None = None
    user_per_minute: int | None = None
    body_bytes: int = 4 * MIB
    tokens: int = MOST_TOKENS
    body_seconds: float = 30.0
    piece_seconds: float = 600.0

    @property
    def most(self) -> int | None:
        """Return the most tokens of an answer; None where the operator sets no limit."""
        return self.tokens if self.tokens < MOST_TOKENS else None


class Users:
    """Requests of each user: at once, and begun within the last minute."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._in_flight: Counter[str] = Counter()
        self._begun: dict[str, deque[float]] = {}
        self._swept = clock()

    @contextmanager
    def request(self, user: str) -> Iterator[None]:
        """Count a request of a user while it is answered. Raises RequestError where it is one too many."""
        self._admit(user)
        self._in_flight[user] += 1
        try:
            yield
        finally:
            self._in_flight[user] -= 1
            if not self._in_flight[user]:
                del self._in_flight[user]

    def _admit(self, user: str) -> None:
        most = self._limits.user_in_flight
        if most is not None and self._in_flight[user] >= most:
            raise RequestError(f"{most} requests of this user are being answered, as many as may be", 429, "user_busy")
        most, now = self._limits.user_per_minute, self._clock()
        if most is None:
            return
        self._sweep(now)
        begun = self._begun.setdefault(user, deque())
        while begun and begun[0] <= now - _MINUTE:
            begun.popleft()
        if len(begun) >= most:
            raise RequestError(
                f"{most} requests of this user began within a minute, as many as may be", 429, "rate_limit_exceeded",
                retry_s=math.ceil(begun[0] + _MINUTE - now),
            )  # fmt: skip
        begun.append(now)

    def _sweep(self, now: float) -> None:
        """Forget users who have asked nothing for a minute: their names are as many as clients make up."""
        if now - self._swept < _MINUTE:
            return
        self._swept = now
        self._begun = {user: begun for user, begun in self._begun.items() if begun and begun[-1] > now - _MINUTE}
