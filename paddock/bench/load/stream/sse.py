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


def events(pieces: Iterable[tuple[float, bytes]]) -> Iterator[Event]:
    """Yield the events of a body that arrived in pieces. Raises ValueError where the body is not UTF-8.

    Any of the three line ends counts, comments (``: ping``) are skipped, several `data` lines are joined, and an event
    that its blank line does not end is dropped, all as the standard has it.
    """
    data: list[str] = []
    kind, first = "", True
    for time, line in _lines(pieces):
        text = line.decode()
        if first:
            text, first = text.removeprefix("\ufeff"), False
        if not text:
            if data:
                yield Event(time, "\n".join(data), kind or "message")
            data, kind = [], ""
            continue
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            kind = value


def _lines(pieces: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Yield each line without its end, with the time of the piece that completed it."""
    rest, after_return = b"", False
    for time, piece in pieces:
        if after_return and piece.startswith(b"\n"):
            piece = piece[1:]  # the second half of a line end that two pieces share
        if not piece:
            continue
        after_return = piece.endswith(b"\r")
        *lines, rest = _LINE_END.split(rest + piece)
        for line in lines:
            yield time, line
