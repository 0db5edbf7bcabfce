"""One request on its way: the record of its end, the guard of its task, and its answer to the client."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Literal

from paddock.serve.admission.limits import RequestError

Outcome = Literal["answered", "refused", "failed", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = ("answered", "refused", "failed", "cancelled")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
JSON = "application/json"
LOOK_S = 2.0
"""Seconds of silence after which an engine may be known to be gone."""
_MEMORY = re.compile(r"out of memory|OutOfMemory|failed to allocate|cudaMalloc failed", re.I)


@dataclass(slots=True)
class Record:
    """One request. Its outcome is `cancelled` until something else is known: the client may go at any time."""

    outcome: Outcome = "cancelled"
    code: str = ""
    model: str = ""
    began: float = field(default_factory=time.perf_counter)
    first_s: float | None = None
    seconds: float = 0.0
    prompt_tokens: int = 0
    new_tokens: int = 0
    judged: bool = False
    out_of_memory: bool = False

    def first(self) -> None:
        """Note that the answer begins."""
        if self.first_s is None:
            self.first_s = time.perf_counter() - self.began

    def failed(self, status: int, code: str) -> None:
        """Note the error that the client gets: its own mistake and a limit are a refusal."""
        self.outcome = "failed" if status >= 500 and status not in (501, 503) else "refused"
        self.code = code


class Guard:
    """Watch over the task that makes it. `why` says why it was cancelled; empty where others did that.

    The engine must send something every so many `seconds`, and the client take it. `is_lost` tells whether the engine
    is known to be gone: a machine that loses its power closes no connection.
    """

    def __init__(self, receive: Receive, seconds: float, is_lost: Callable[[], bool]) -> None:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._seconds, self._is_lost = seconds, is_lost
        self.beaten = self._loop.time()
        self.sending = False
        self.why: Literal["", "left", "late", "lost"] = ""
        self._timer = self._loop.call_later(min(seconds, LOOK_S), self._look)
        self._gone = asyncio.create_task(self._wait(receive))

    def beat(self) -> None:
        """Note that something came."""
        self.beaten = self._loop.time()

    def close(self) -> None:
        """Watch no more."""
        self._task = None
        self._timer.cancel()
        self._gone.cancel()

    def _look(self) -> None:
        silent = self._loop.time() - self.beaten
        if silent >= self._seconds:
            self._end("left" if self.sending else "late")
        elif silent >= LOOK_S and not self.sending and self._is_lost():
            self._end("lost")
        else:
            self._timer = self._loop.call_later(min(self._seconds - silent, LOOK_S), self._look)

    async def _wait(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._end("left")

    def _end(self, why: Literal["left", "late", "lost"]) -> None:
        if self._task and not self.why:
            self.why = why
            self._task.cancel()


@dataclass(frozen=True, slots=True)
class Who:
    """Asker: the application by its header `OpenAI-Project`, and the user that the request names, else its key."""

    application: str = ""
    user: str = ""


NOBODY = Who()


class Exchange:
    """One answer to a client, and its record. `sent` is the instance that has the request."""

    def __init__(self, send: Send, record: Record) -> None:
        self._send, self.record = send, record
        self.guard: Guard | None = None
        self.began = False
        self.sent: Mapping[str, Any] | None = None
        self.who = NOBODY

    async def begin(self, status: int, kind: str, headers: Mapping[str, str] | None = None) -> None:
        """Send the head."""
        self.began = True
        fields = {"content-type": kind, **(headers or {})}
        await self._send(
            {"type": "http.response.start", "status": status,
             "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]}
        )  # fmt: skip

    async def body(self, data: bytes, *, more: bool) -> None:
        """Send a piece of the body; it waits while the client reads slowly."""
        if self.guard:
            self.guard.sending = True
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        if self.guard:
            self.guard.sending = False

    async def whole(self, status: int, kind: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer that is there at once."""
        await self.begin(status, kind, {"content-length": str(len(data)), **(headers or {})})
        if self.guard:
            self.guard.close()  # what comes after is no longer the client's
        await self.body(data, more=False)

    async def refuse(self, error: RequestError) -> None:
        """State an error: as the answer, or as the event that ends a stream."""
        self.record.failed(error.status, error.code)
        self.record.out_of_memory |= _MEMORY.search(error.message) is not None
        text = json.dumps(error.document())
        if self.began:
            kind = "" if self.record.judged else "event: error\n"  # chunks of OpenAI's streams have no type
            await self.body(f"{kind}data: {text}\n\n".encode(), more=False)
            return
        headers = {"retry-after": str(error.retry_s)} if error.status in (429, 503) else {}
        if error.status == 405:
            headers = {"allow": "POST"}
        await self.whole(error.status, JSON, text.encode(), headers)
