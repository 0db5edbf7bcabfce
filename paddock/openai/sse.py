"""Server-sent events, as the HTML standard defines them (§9.2.6, "Interpreting an event stream").

Beyond the standard: events and lines have a longest size, a body must be UTF-8, its last event may lack the blank
line, and what engines write in place of an event is one: llama.cpp's field `error` and a line of JSON without a field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from paddock.openai.errors import ExchangeError

MOST_BYTES = 8 << 20
"""Longest line, and longest event."""
DONE = "[DONE]"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LINE_COST = 64
"""Bytes that a line of an event takes besides its text."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `time` is when its last byte arrived.

    Its type is the one that it names, else `message`; `error` for llama.cpp's field of that name, and `bare` for a line
    of JSON without a field.
    """

    time: float
    data: str
    type: str = "message"


class EventReader:
    """Reader of the events of one body as its pieces arrive. It keeps at most a line and an event."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._rest = bytearray()
        self._after_return, self._first = False, True
        self._data: list[str] = []
        self._size = 0
        self._kind = ""

    def feed(self, time: float, piece: bytes) -> Iterator[Event]:
        """Yield the events that a piece completes. Raises ExchangeError for what is not UTF-8, or too long."""
        for line in self._lines(piece):
            yield from self._line(time, _text(line))

    def end(self, time: float) -> Iterator[Event]:
        """Yield the last event where the body ended after a whole line of it, or with `[DONE]`. Raises ExchangeError.

        A line that is cut off is dropped, as the standard has it.
        """
        rest = _text(bytes(self._rest))
        self._rest.clear()
        if rest.startswith(("{", "error:")) or rest.removeprefix("data:").strip() == DONE:
            yield from self._line(time, rest)
            rest = ""
        if not rest:
            yield from self._line(time, "")

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        """Yield each line that a piece completes, without its end."""
        if not piece:
            return
        if self._after_return and piece.startswith(b"\n"):
            piece, self._after_return = piece[1:], False  # the second half of a line end that two pieces share
            if not piece:
                return
        self._after_return = piece.endswith(b"\r")
        *lines, rest = _LINE_END.split(piece)
        for line in lines:
            self._rest += line
            self._check(len(self._rest), "line")
            whole = bytes(self._rest)
            self._rest.clear()
            yield whole
        self._rest += rest
        self._check(len(self._rest), "line")

    def _line(self, time: float, text: str) -> Iterator[Event]:
        if self._first:
            text, self._first = text.removeprefix("\ufeff"), False
        if not text:
            data, kind = self._data, self._kind
            self._data, self._kind, self._size = [], "", 0
            if data or kind == "error":
                yield Event(time, "\n".join(data), kind or "message")
            return
        if text.startswith("{"):
            yield Event(time, text, "bare")
            return
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._size += len(value) + _LINE_COST
            self._check(self._size, "event")
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "error":
            yield Event(time, value, "error")

    def _check(self, size: int, what: str) -> None:
        if size > self._most:
            raise ExchangeError("malformed", f"the stream has {what}s of more than {self._most} bytes")


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        where = "ends in the middle of a letter" if error.reason == "unexpected end of data" else "is not text"
        raise ExchangeError("malformed", f"the stream {where} (UTF-8)") from None
