"""Server-sent events by the standard, and what is beyond it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.openai.sse import Event, EventReader

from .forms import cut

BODY = (
    b": ping\r\ndata: a\r\n\r\nevent: other\ndata:b\ndata: c\n\n"
    b"data\r\rid: 7\n\ndata: \xc3\xa9\xe2\x82\xac\n\ndata: dropped"
)
EVENTS = [("message", "a"), ("other", "b\nc"), ("message", ""), ("message", "é€")]


def events(pieces: list[bytes]) -> list[Event]:
    reader = EventReader()
    found = [event for time, piece in enumerate(pieces) for event in reader.feed(time, piece)]
    return [*found, *reader.end(len(pieces))]


@given(st.lists(st.integers(0, len(BODY))))
def test_events_are_the_same_however_the_body_is_cut(cuts: list[int]) -> None:
    assert [(event.type, event.data) for event in events(cut(BODY, cuts))] == EVENTS


def test_a_line_end_that_two_pieces_share_is_one() -> None:
    assert [event.data for event in events([b"data: a\r", b"\n", b"\n", b"data: b\r", b"\n\r\n"])] == ["a", "b"]


def test_an_event_has_the_time_of_its_last_byte() -> None:
    pieces = [b"data: a", b"\n\ndata: b\n\nda", b"ta: c\n\n"]
    assert [event.time for event in events(pieces)] == [1, 1, 2]


@pytest.mark.parametrize(("data", "found"), [
    (b"data: a\n", [("message", "a")]),
    (b"data: a\ndata: b", []),
    (b"data: [DONE]", [("message", "[DONE]")]),
    (b"data:[DONE]", [("message", "[DONE]")]),
    (b"event: error\n", [("error", "")]),
    (b"error: boom", [("error", "boom")]),
    (b'{"error": 1}', [("bare", '{"error": 1}')]),
    (b"id: 1\n\n: bye", []),
])  # fmt: skip
def test_a_body_may_end_without_a_blank_line(data: bytes, found: list[tuple[str, str]]) -> None:
    assert [(event.type, event.data) for event in events([data])] == found
