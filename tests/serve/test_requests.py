"""Requests of the OpenAI interfaces: what is taken, and what is refused with which words."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import chat, completion

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=8,
)
KEYS = st.sampled_from(["model", "prompt", "messages", "max_tokens", "stream", "n", "user", "stream_options"])


def body(**values: Any) -> bytes:
    return json.dumps({"model": "tiny", **values}).encode()


def test_a_completion_is_read_with_its_limits() -> None:
    generation = completion(body(prompt="hello", max_tokens=8, stream=True, stream_options={"include_usage": True}))
    assert (generation.prompt, generation.max_tokens, generation.stream, generation.usage) == ("hello", 8, True, True)


def test_keys_that_only_change_what_a_model_says_are_no_error() -> None:
    assert completion(body(prompt="x", temperature=0.2, top_p=1, seed=3)).prompt == "x"


def test_a_chat_becomes_one_prompt_with_its_roles() -> None:
    generation = chat(body(messages=[{"role": "user", "content": "hi"}], max_completion_tokens=3, max_tokens=9))
    assert generation.prompt == "user: hi\nassistant:"
    assert generation.max_tokens == 3


@pytest.mark.parametrize(
    ("parse", "values", "param"),
    [
        (completion, {}, "prompt"),
        (completion, {"prompt": ["a", "b"]}, "prompt"),
        (completion, {"prompt": "x", "max_tokens": 0}, "max_tokens"),
        (completion, {"prompt": "x", "max_tokens": "5"}, "max_tokens"),
        (completion, {"prompt": "x", "n": 3}, "n"),
        (chat, {"messages": []}, "messages"),
        (chat, {"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
    ],
)
def test_a_wrong_value_is_named(parse: Any, values: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as error:
        parse(body(**values))
    assert (error.value.status, error.value.param) == (400, param)
    assert error.value.document()["error"]["message"].startswith(param)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'"x"', b"NaN"])
def test_what_is_no_request_is_refused(text: bytes) -> None:
    with pytest.raises(RequestError):
        completion(text)


@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_any_json_is_a_request_or_a_stated_error(values: dict[str, Any]) -> None:
    text = json.dumps(values).encode()
    for parse in (completion, chat):
        with contextlib.suppress(RequestError):
            parse(text)
