"""Streams on their way to a client: what goes on of one, however its bytes are divided, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.openai.errors import ExchangeError
from paddock.serve.gateway.answer import Judge, judged
from tests.openai.forms import FORMS, cut
from tests.openai.forms import body as published

PLACES = st.lists(st.integers(0, 2000), max_size=6)


def passed(pieces: Iterable[bytes], **options: Any) -> tuple[bytes, str, int]:
    """Return what goes on of a body, why it is not whole, and its tokens."""
    judge, result = Judge(**{"withhold": False, **options}), b""
    for piece in pieces:
        if piece and not judge.ended:
            result += judge.feed(piece)
    if not judge.ended:
        result += judge.end()
    return result, str(judge.failure or ""), judge.usage.completion


def chunk(text: str, **more: Any) -> bytes:
    """Return an event as vLLM and llama.cpp write it."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more.pop("choice", {})}
    document = {"id": "x", "choices": [choice], "model": "m", **more}
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


END = chunk("", choice={"finish_reason": "stop"}) + b"data: [DONE]\n\n"


@given(st.sampled_from(FORMS), PLACES)
def test_a_body_in_pieces_is_the_body_at_once(form: dict[str, Any], places: list[int]) -> None:
    assert passed(cut(published(form), places)) == passed([published(form)])


@given(st.lists(st.text(), max_size=5), PLACES)
def test_text_passes_unchanged_whatever_it_says(texts: list[str], places: list[int]) -> None:
    body = b"".join(chunk(text) for text in [*texts, '"error": [DONE] data: "finish_reason":"abort"']) + END
    result, failure, _ = passed(cut(body, places))
    assert (result, failure) == (body, "")


@pytest.mark.parametrize(
    "bad",
    [
        chunk("x", error={"message": "boom"}), chunk("x", choice={"error": {"message": "boom"}}),
        chunk("x", choice={"finish_reason": "error"}), chunk("x", choice={"finish_reason": {"type": "abort"}}),
        chunk("x", base_resp={"status_code": 7, "status_msg": "boom"}), chunk("x", error_code=7, error_msg="boom"),
        b'data: {"object":"error","message":"boom"}\n\n', b'data: {"message":"boom","code":500}\n\n',
        b'data: {"choices":[{"delta":{"content":7}}]\n\n', b'event: error\ndata: {"a":1}\n\n', b'{"error":"boom"}\n\n',
        b"data: [DONE]\n\n",
    ],
)  # fmt: skip
def test_no_error_hides_behind_a_piece_of_text(bad: bytes) -> None:
    body = chunk("a") + chunk("b")
    result, failure, _ = passed([body, bad, END])
    assert (result, bool(failure)) == (body, True)


def test_a_null_before_the_answer_says_nothing() -> None:
    body = b"data: null\n\n" + chunk("a") + END
    assert passed([body]) == (body, "", 1)


@pytest.mark.parametrize("before", [b": ping\n", b"event: message\r\nid: 7\r\n"])
def test_a_line_before_the_data_hides_no_name_and_no_usage(before: bytes) -> None:
    usage = b'data: {"choices":[],"usage":{"completion_tokens":1}}\n\n'
    result, failure, _ = passed([before, chunk("a"), before, usage, END], rename=("m", "ours"), withhold=True)
    assert (b'"m"' in result, b"usage" in result, result.count(b'"ours"'), failure) == (False, False, 2, "")


def test_pieces_of_text_are_counted_where_the_server_counts_nothing() -> None:
    assert passed([chunk("a"), chunk("b"), chunk(""), chunk("c"), END])[2] == 3


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[{"finish_reason":null}]}', b"\xff"]
)
def test_an_answer_that_is_not_whole_is_an_error(body: bytes) -> None:
    with pytest.raises(ExchangeError):
        judged(body)
