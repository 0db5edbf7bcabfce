"""Server-sent events, as the HTML standard defines them (§9.2.6, "Interpreting an event stream")."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `time` is when its last byte arrived."""

    time: float
    data: str
    type: str = "message"


class EventReader:
    """Reader of the events of one body as its pieces arrive."""

    def __init__(self) -> None:
        self._rest, self._after_return, self._first = b"", False, True
        self._data: list[str] = []
        self._kind = ""

    def feed(self, time: float, piece: bytes) -> Iterator[Event]:
        """Yield the events that a piece completes. Raises ValueError where the body is not UTF-8."""
        for line in self._lines(piece):
            text = line.decode()
            if self._first:
                text, self._first = text.removeprefix("\ufeff"), False
            if not text:
                data, kind = self._data, self._kind
                self._data, self._kind = [], ""
                if data:
                    yield Event(time, "\n".join(data), kind or "message")
                continue
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._kind = value

    def _lines(self, piece: bytes) -> list[bytes]:
        """Return each line that a piece completes, without its end."""
        if self._after_return and piece.startswith(b"\n"):
            piece = piece[1:]  # the second half of a line end that two pieces share
        if not piece:
            return []
        self._after_return = piece.endswith(b"\r")
        *lines, self._rest = _LINE_END.split(self._rest + piece)
        return lines


def events(pieces: Iterable[tuple[float, bytes]]) -> Iterator[Event]:
    """Yield the events of a body that arrived in pieces. Raises ValueError where the body is not UTF-8.

    Any of the three line ends counts, comments (``: ping``) are skipped, several `data` lines are joined, and an event
    that its blank line does not end is dropped, all as the standard has it.
    """
    reader = EventReader()
    for time, piece in pieces:
        yield from reader.feed(time, piece)
