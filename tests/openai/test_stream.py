"""One reader of streams, on what servers have published, and on anything else."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.openai.errors import ExchangeError
from paddock.openai.sse import MOST_BYTES, EventReader
from paddock.openai.stream import StreamReader
from tests.support.explore import examples

from .forms import FAILED, FORMS, WHOLE, body, cut, events, read

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from([
    "choices", "delta", "content", "text", "finish_reason", "usage", "prompt_tokens", "completion_tokens", "error",
    "message", "error_code", "object", "tool_calls", "index", "id", "function", "arguments", "logprobs", "token_ids",
    "reasoning_content", "reasoning", "base_resp", "status_code", "detail", "code", "x_groq", "type",
])  # fmt: skip
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 300) | st.floats() | st.sampled_from(["", "stop", "error", "a", "0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)
LINES = st.sampled_from([
    b"data: ", b"data:", b"error: ", b"event: error\n", b"event: ping\n", b": ping\n", b"\n", b"\r", b"\r\n", b"[DONE]",
    b"{", b'{"error": "x"}', b"\xef\xbb\xbf", b"\xff", b"\xe2\x82", b"<html>", b"\x1f\x8b", b"data: [DONE]\n\n",
    b'data: {"choices": [{"text": "a", "finish_reason": "stop"}]}\n\n',
])  # fmt: skip
BODIES = st.lists(LINES | st.binary(max_size=12), max_size=14).map(b"".join)


@pytest.mark.parametrize("form", WHOLE, ids=lambda form: form["name"])
def test_every_published_form_of_an_answer_is_whole(form: dict[str, Any]) -> None:
    answer = read([body(form)])
    assert answer.failure is None
    assert answer.text == form["text"]
    assert {name: answer.said(name) for name in form.get("fields", {})} == form.get("fields", {})
    usage = answer.reader.usage
    assert (usage and [usage.prompt, usage.completion]) == form.get("usage")


@pytest.mark.parametrize("form", FAILED, ids=lambda form: form["name"])
def test_every_published_form_of_an_error_is_a_failure_with_its_words(form: dict[str, Any]) -> None:
    failure = read([body(form)]).failure
    assert failure is not None
    assert failure.kind == ("closed early" if "without a finish" in form["error"] else "server error")
    assert form["error"] in failure.message


def test_the_forms_are_from_many_servers_and_each_has_its_source() -> None:
    assert len(FORMS) >= 30
    assert all(form["source"] for form in FORMS)


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "function_call", "content_filter", "eos", "STOP"])
def test_an_answer_is_whole_with_an_ordinary_end(reason: str) -> None:
    assert read(events({"choices": [{"text": "a", "finish_reason": reason}]})).failure is None


@pytest.mark.parametrize("reason", ["error", "abort", "cancelled", "some_day", {"type": "abort", "message": "paused"}])
def test_an_answer_with_another_end_has_failed(reason: Any) -> None:
    failure = read(events({"choices": [{"text": "a", "finish_reason": reason}]}, "[DONE]")).failure
    assert failure is not None
    assert (reason if isinstance(reason, str) else "abort', which is not an ordinary end: paused") in failure.message


@pytest.mark.parametrize("error", [None, {}, "", False, {"message": None, "code": None}])
def test_an_error_that_says_nothing_is_not_an_error(error: Any) -> None:
    assert read(events({"choices": [{"text": "a", "finish_reason": "stop"}], "error": error})).failure is None


@pytest.mark.parametrize(("data", "kind", "words"), [
    (b"", "malformed", "nothing"),
    (b"data: {oops\n\n", "malformed", "a chunk is not JSON: {oops"),
    (b"data: [1]\n\n", "malformed", "not a JSON object"),
    (b'data: {"choices": [7]}\n\n', "malformed", "not have the form"),
    (b'data: {"choices": [{"delta": {"content": 7}}]}\n\n', "malformed", "not have the form"),
    (b"data: " + b"[" * 5000 + b"\n\n", "malformed", "nested more than 100 levels"),
    (b'data: {"a": ' + b"[" * 150 + b"]" * 150 + b"}\n\n", "malformed", "nested more than 100 levels"),
    (b"data: \xff\xff\n\n", "malformed", "not text (UTF-8)"),
    ("data: é".encode()[:-1], "malformed", "ends in the middle of a letter"),
    (b"<!DOCTYPE html><html><title>Sign in</title>", "malformed", "a page of HTML, not a stream: <"),
    (b"\n\n  <html>" + b"x" * 5000, "malformed", "a page of HTML"),
    (b"\x1f\x8b\x08" + b"x" * 50, "malformed", "compressed with gzip, and its head does not say so"),
    (b'{"id": "c", "choices": [{"message": {"content": "a"}}]}', "malformed", "one whole answer, and a stream was"),
    (b'{\n  "error": {"message": "no such model"}\n}', "server error", "no such model"),
    (b'{"models": []}', "malformed", "JSON that is not a streamed answer"),
    (b'data: {"choices": [{"text": "a"}]}\n\n', "closed early", "without a finish_reason"),
    (b'data: {"choices": [{"text": "a"}]}\n\ndata: {"choices": [{"finish_re', "closed early", "without a finish"),
])  # fmt: skip
def test_a_body_that_is_not_an_answer_says_what_it_is(data: bytes, kind: str, words: str) -> None:
    for pieces in ([data], cut(data, range(len(data)))):
        failure = read(pieces).failure
        assert failure is not None
        assert failure.kind == kind
        assert words in failure.message


def test_a_byte_a_second_gives_each_part_at_its_time() -> None:
    data = b"".join(events({"choices": [{"text": "a"}]}, {"choices": [{"text": "é", "finish_reason": "stop"}]}))
    answer = read(cut(data, range(len(data))))
    first = data.index(b"\n\n") + 2
    assert [(part.text, part.time) for part in answer.parts] == [("a", first), ("é", len(data))]


@given(st.sampled_from(FORMS), st.lists(st.integers(0, 5000), max_size=12))
@examples(150, 3000)
def test_a_stream_is_the_same_however_it_is_cut(form: dict[str, Any], cuts: list[int]) -> None:
    whole, pieces = read([body(form)]), read(cut(body(form), cuts))
    assert [replace(part, time=0) for part in pieces.parts] == [replace(part, time=0) for part in whole.parts]
    assert (pieces.failure, pieces.reader.usage) == (whole.failure, whole.reader.usage)


@given(BODIES, st.lists(st.integers(0, 200), max_size=6))
@examples(300, 20_000)
def test_any_bytes_in_any_pieces_are_an_answer_or_a_failure(data: bytes, cuts: list[int]) -> None:
    whole, pieces = read([data]), read(cut(data, cuts))
    assert [replace(part, time=0) for part in pieces.parts] == [replace(part, time=0) for part in whole.parts]
    assert pieces.failure == whole.failure


@given(st.lists(DOCUMENTS | JSON, max_size=4))
@examples(300, 20_000)
def test_any_documents_are_an_answer_or_a_failure(documents: list[Any]) -> None:
    answer = read(events(*documents))
    assert answer.failure is None or answer.failure.message


def test_an_endless_line_and_an_endless_event_are_cut_short() -> None:
    for data in (b"x" * (1 << 16), b"data: x\n" * (1 << 13), b"data\n" * (1 << 13)):
        reader = EventReader(most=1 << 20)
        with pytest.raises(ExchangeError, match="of more than 1048576 bytes"):
            assert [event for _ in range(200) for event in reader.feed(0, data)]


def test_a_stream_without_an_end_takes_no_more_memory() -> None:
    piece = b"".join([b": ping\n\n", *events({"choices": [{"delta": {"content": "w" * 100}}]}), b"event: x\nid: 7\n\n"])
    reader = StreamReader()
    tracemalloc.start()
    try:
        for _ in range(3000):
            for part in reader.feed(0, piece):
                assert part.text
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_long_line_a_byte_at_a_time_is_no_hang() -> None:
    reader = EventReader()
    for _ in range(200_000):  # of which each would copy the line that has come
        assert not list(reader.feed(0, b"x"))
    assert MOST_BYTES > 200_000
