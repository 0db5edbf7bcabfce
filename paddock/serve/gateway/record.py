"""Record of a request from its first byte to its end, whichever way that comes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Outcome = Literal["answered", "refused", "failed", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = ("answered", "refused", "failed", "cancelled")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
_KEY = "paddock.record"


@dataclass(slots=True)
class Record:
    """One request. Its outcome is `cancelled` until something else is known: the client may go at any time.

    `held` has all that the request holds, which is given back at its end.
    """

    outcome: Outcome = "cancelled"
    code: str = ""
    model: str = ""
    began: float = field(default_factory=time.perf_counter)
    first_s: float | None = None
    seconds: float = 0.0
    prompt_tokens: int = 0
    new_tokens: int = 0
    held: AsyncExitStack = field(default_factory=AsyncExitStack)

    def piece(self, prompt_tokens: int, new_tokens: int) -> None:
        """Note a piece of the answer."""
        self.seconds = time.perf_counter() - self.began
        if self.first_s is None:
            self.first_s = self.seconds
        self.prompt_tokens, self.new_tokens = prompt_tokens, new_tokens

    def failed(self, status: int, code: str) -> None:
        """Note the error that the client gets: its own mistake and a limit are a refusal."""
        self.outcome = "failed" if status >= 500 and status != 503 else "refused"
        self.code = code


class Ends(Protocol):
    """Counter of requests by their ends."""

    def begin(self) -> None: ...

    def end(self, record: Record) -> None: ...


class Recorded:
    """ASGI application around another one that records every request of some paths, and counts each once."""

    def __init__(self, application: Application, ends: Ends, paths: frozenset[str]) -> None:
        self._application, self._ends, self._paths = application, ends, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self._paths:
            await self._application(scope, receive, send)
            return
        record = Record()
        self._ends.begin()
        try:
            async with record.held:
                await self._application({**scope, _KEY: record}, receive, send)
        finally:
            record.seconds = time.perf_counter() - record.began
            self._ends.end(record)


def record_of(scope: Mapping[str, Any]) -> Record:
    """Return the record of the request; a new one, which nobody counts, on a path that is not recorded."""
    record = scope.get(_KEY)
    return record if isinstance(record, Record) else Record()
