"""Streams: server-sent events by the standard, and tokens that are never taken for chunks."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.bench.load.client.messages import Exchange
from paddock.bench.load.stream.answer import Answer, read_answer
from paddock.bench.load.stream.sse import events

BODY = (
    b": ping\r\ndata: a\r\n\r\nevent: other\ndata:b\ndata: c\n\n"
    b"data\r\rid: 7\n\ndata: \xc3\xa9\xe2\x82\xac\n\ndata: dropped"
)
EVENTS = [("message", "a"), ("other", "b\nc"), ("message", ""), ("message", "é€")]


@given(st.lists(st.integers(0, len(BODY))))
def test_events_are_the_same_however_the_body_is_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(BODY)]
    pieces = [(float(n), BODY[low:high]) for n, (low, high) in enumerate(pairwise(edges))]
    assert [(event.type, event.data) for event in events(pieces)] == EVENTS


def test_an_event_has_the_time_of_its_last_byte() -> None:
    pieces = [(1.0, b"data: a"), (2.0, b"\n\ndata: b\n\nda"), (3.0, b"ta: c\n\n")]
    assert [event.time for event in events(pieces)] == [2, 2, 3]


def answer(*chunks: tuple[float, Any]) -> Answer:
    pieces = tuple((time, b"data: " + json.dumps(data).encode() + b"\n\n") for time, data in chunks)
    done = (chunks[-1][0], b"data: [DONE]\n\n") if chunks else (0.0, b"")
    return read_answer(Exchange(0, 0.0, 0.0, 9.0, 8, status=200, pieces=(*pieces, done)))


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"text": words, **fields}]}


def usage(tokens: int) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 3, "completion_tokens": tokens}}


@pytest.mark.parametrize(("chunks", "by"), [
    ([text("a", token_ids=[5]), text("b c d", token_ids=[6, 7, 8]), usage(4)], "token ids"),
    ([text("a", logprobs={"tokens": ["a"]}), text("bcd", logprobs={"tokens": ["b", "c", "d"]})], "logprobs"),
    ([text("a") | usage(1), text("b c d") | usage(4), usage(4) | {"choices": []}], "running usage"),
])  # fmt: skip
def test_a_chunk_of_three_tokens_is_three_gaps(chunks: list[dict[str, Any]], by: str) -> None:
    read = answer(*zip((1.0, 1.6, 2.0), chunks, strict=False))
    assert (read.counted_by, read.tokens, read.failure) == (by, 4, None)
    assert read.gaps() == pytest.approx([0.2, 0.2, 0.2])


def test_usage_is_spread_where_chunks_say_nothing() -> None:
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
    words = [(1.0 + n, {"choices": [{"delta": {"content": "x"}}]}) for n in range(3)]
    read = answer((0.5, role), *words, (4.0, usage(5) | {"choices": []}))
    assert (read.counted_by, read.first, read.tokens) == ("usage, spread over the chunks", 1.0, 5)
    assert [chunk.tokens for chunk in read.chunks] == [2, 2, 1]
    assert read.gaps() == pytest.approx([0.5, 0.5, 1.0])


def test_without_usage_tokens_are_unknown_and_not_chunks() -> None:
    read = answer((1.0, text("a")), (2.0, text("b", finish_reason="stop")))
    assert (read.tokens, read.counted_by, read.succeeded) == (None, "nothing", True)


@pytest.mark.parametrize(("body", "kind", "message"), [
    (b"data: {oops\n\n", "malformed", "not JSON: {oops"),
    (b"data: [1]\n\n", "malformed", "no JSON object"),
    (b'data: {"choices": [7]}\n\n', "malformed", "not the form"),
    (b'data: {"error": {"message": "out of memory"}}\n\n', "malformed", "out of memory"),
    (b"data: \xff\xff\n\n", "malformed", "not the form"),
    (b"<html>hello</html>", "malformed", "without a token: <html>hello"),
    (b'data: {"choices": [{"text": "a"}]}\n\n', "closed early", "without a finish_reason"),
])  # fmt: skip
def test_a_bad_stream_is_a_failure_of_its_kind(body: bytes, kind: str, message: str) -> None:
    failure = read_answer(Exchange(0, 0.0, 0.0, 9.0, 8, status=200, pieces=((1.0, body),))).failure
    assert failure.kind == kind
    assert message in failure.message
