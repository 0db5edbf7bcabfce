"""Answers of a load: tokens that are never taken for chunks, and what is not an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddock.bench.load.answer import Answer, read_answer
from paddock.bench.load.client.messages import Exchange
from paddock.openai.errors import Failure, FailureKind


def answer(*chunks: tuple[float, Any]) -> Answer:
    pieces = tuple((time, b"data: " + json.dumps(data).encode() + b"\n\n") for time, data in chunks)
    end = b'data: {"choices": [{"text": "", "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    return read_answer(Exchange(0, 0.0, 0.0, 9.0, 8, status=200, pieces=(*pieces, (chunks[-1][0], end))))


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


@pytest.mark.parametrize("count", [10**6, 10**12, 10**4000])
def test_a_count_beyond_all_reason_is_no_count(count: int) -> None:
    for chunks in ([text("a") | usage(count)], [text("a"), usage(count)]):
        read = answer(*zip((1.0, 2.0), chunks, strict=False))
        assert (read.tokens, read.counted_by, read.succeeded) == (None, "nothing", True)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_tokens_of_the_answer(name: str) -> None:
    thought, said = ({"choices": [{"delta": {field: "x"}}]} for field in (name, "content"))
    read = answer((1.0, thought), (2.0, thought), (3.0, said), (4.0, usage(3) | {"choices": []}))
    assert (read.first, read.tokens, read.failure) == (1.0, 3, None)


def failure(body: bytes, broken: Failure | None = None) -> Failure:
    read = read_answer(Exchange(0, 0.0, 0.0, 9.0, 8, status=200, pieces=((1.0, body),), failure=broken))
    assert read.failure is not None
    return read.failure


@pytest.mark.parametrize(("body", "kind", "message"), [
    (b"data: {oops\n\n", "malformed", "not JSON: {oops"),
    (b'data: {"error": {"message": "out of memory"}}\n\n', "server error", "out of memory"),
    (b"<html>hello</html>", "malformed", "a page of HTML, not a stream: <html>hello"),
    (b'data: {"choices": [{"text": "a"}]}\n\n', "closed early", "without a finish_reason"),
    (b'data: {"choices": [{"text": "", "finish_reason": "stop"}]}\n\n', "malformed", "without a token: data"),
    (b'data: {"choices": [{"finish_reason": "length"}], "usage": {"completion_tokens": 8}}\n\n', "malformed",
     "without a token to see, and a usage of 8"),
])  # fmt: skip
def test_a_bad_stream_is_a_failure_of_its_kind(body: bytes, kind: FailureKind, message: str) -> None:
    found = failure(body)
    assert found.kind == kind
    assert message in found.message


def test_a_servers_words_come_before_a_broken_connection() -> None:
    broken = Failure("closed early", "the connection was closed in the middle of the answer")
    assert failure(b'data: {"choices": [{"text": "a"}]}\n\n', broken) == broken
    assert failure(b'data: {"error": "out of memory"}\n\n', broken).kind == "server error"
