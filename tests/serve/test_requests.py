"""Requests of the OpenAI interfaces: what is taken, and what is refused with which words."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.openai.request import passed_on
from paddock.serve.admission.options import check_own_engine
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation, chat, completion, known_fields
from paddock.serve.admission.sampling import Sampling

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["model", "prompt", "messages", "max_tokens", "max_completion_tokens", "stream", "n", "user", "stream_options",
     "temperature", "top_p", "seed", "stop", "logprobs", "echo", "tools", "tool_choice", "response_format", "top_k"]
)  # fmt: skip
USER = [{"role": "user", "content": "hi"}]


def check(generation: Generation) -> None:
    """Check a request as Paddock's own engine does."""
    check_own_engine(generation.document, known_fields(chat=generation.chat))


def body(**values: Any) -> bytes:
    return json.dumps({"model": "tiny", **values}).encode()


def test_a_completion_is_read_with_its_limits() -> None:
    generation = completion(body(prompt="hello", max_tokens=8, stream=True, stream_options={"include_usage": True}))
    assert (generation.prompt, generation.max_tokens, generation.stream, generation.usage) == ("hello", 8, True, True)


def test_sampling_and_stops_of_a_request_are_read() -> None:
    generation = completion(body(prompt="x", temperature=0.2, top_p=1, seed=3, stop="end"))
    assert (generation.sampling, generation.stop) == (Sampling(0.2, 1, 3), ("end",))
    assert chat(body(messages=USER, stop=["a", "b"])).stop == ("a", "b")


@pytest.mark.parametrize(
    ("values", "greedy", "scale"),
    [
        ({}, True, 0),
        ({"seed": 3, "top_p": 1}, True, 0),
        ({"temperature": 0, "top_p": 0.5}, True, 0),
        ({"temperature": 1, "top_p": 0}, True, 1),
        ({"top_p": 0.5}, False, 1),
        ({"temperature": 0.3}, False, 0.3),
    ],
)
def test_tokens_are_the_most_probable_unless_asked_otherwise(values: Any, greedy: bool, scale: float) -> None:
    sampling = completion(body(prompt="x", **values)).sampling
    assert (sampling.greedy, sampling.scale) == (greedy, scale)


def test_null_is_the_same_as_left_out() -> None:
    absent = dict.fromkeys(
        ["max_tokens", "stream", "n", "user", "temperature", "top_p", "seed", "stop", "logprobs", "tools", "echo",
         "stream_options"]
    )  # fmt: skip
    assert completion(body(prompt="x", **absent)) == completion(body(prompt="x"))
    assert chat(body(messages=USER, **absent, max_completion_tokens=None)) == chat(body(messages=USER))


def test_content_may_be_parts_of_text_or_nothing() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None, "tool_calls": calls}]
    assert chat(body(messages=messages)).messages == (
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "", "tool_calls": calls},
    )
    assert completion(body(prompt=["only"])).prompt == "only"


@pytest.mark.parametrize(
    ("name", "value"),
    [("logprobs", 0), ("logprobs", True), ("echo", True), ("n", 2), ("best_of", 3), ("suffix", "x"),
     ("top_logprobs", 2), ("functions", [{}]), ("modalities", ["audio"]), ("n", True)],
)  # fmt: skip
def test_an_option_that_no_engine_has_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as error:
        completion(body(prompt="x", **{name: value}))
    assert (error.value.status, error.value.code, error.value.param) == (400, "unsupported_parameter", name)
    assert str(error.value).startswith(f"{name}: it is not supported")


@pytest.mark.parametrize(
    ("name", "value"),
    [("response_format", {"type": "json_object"}), ("tools", [{"type": "function"}]), ("logit_bias", {"5": 1}),
     ("presence_penalty", 0.5), ("top_k", 40), ("tool_choice", "required"), ("reasoning_effort", "low"),
     ("chat_template_kwargs", {"enable_thinking": False}), ("ignore_eos", True), ("min_tokens", 3),
     ("guided_json", {}), ("stop_token_ids", [1]), ("an_option_of_tomorrow", 0)],
)  # fmt: skip
def test_an_option_of_external_engines_is_kept_for_them_and_refused_elsewhere(name: str, value: Any) -> None:
    generation = chat(body(messages=USER, **{name: value}))
    assert generation.document == {"model": "tiny", "messages": USER, name: value}
    with pytest.raises(RequestError, match=f"{name}: it is not supported by this model") as error:
        check(generation)
    assert error.value.param == name


def test_an_image_is_kept_for_external_engines_and_refused_elsewhere() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    generation = chat(body(messages=[{"role": "user", "content": parts}]))
    assert generation.document["messages"][0]["content"] == parts
    with pytest.raises(RequestError, match=r"messages\.0\.content\.1\.type: it is not supported by this model"):
        check(generation)


def test_a_name_that_cannot_be_written_is_refused_all_the_same() -> None:
    with pytest.raises(RequestError) as error:
        check(completion(body(prompt="x", **{"\ud800": 1})))
    assert str(error.value).encode()


def test_an_option_that_is_misspelt_is_named_with_the_right_one() -> None:
    with pytest.raises(RequestError, match=r"max_token: it is not .* did you mean max_tokens\?"):
        check(completion(body(prompt="x", max_token=3)))


def test_an_option_that_asks_for_what_happens_anyway_is_no_error() -> None:
    values = {"n": 1, "logprobs": False, "presence_penalty": 0, "tools": [], "response_format": {"type": "text"},
              "ignore_eos": False, "guided_json": None, "chat_template_kwargs": {}}  # fmt: skip
    check(chat(body(messages=USER, **values, tool_choice="auto", metadata={"a": "b"})))


def test_an_answer_longer_than_the_operators_limit_is_refused() -> None:
    with pytest.raises(RequestError, match="max_tokens: an answer has at most 64 tokens here"):
        completion(body(prompt="x", max_tokens=65), 64)
    with pytest.raises(RequestError, match="max_completion_tokens: an answer has at most 64 tokens here"):
        chat(body(messages=USER, max_completion_tokens=65), 64)
    generation = completion(body(prompt="x"), 64)
    assert (generation.max_tokens, generation.most) == (None, 64)


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
        (completion, {"prompt": "x", "temperature": 2.1}, "temperature"),
        (completion, {"prompt": "x", "top_p": -1}, "top_p"),
        (completion, {"prompt": "x", "seed": 2**63}, "seed"),
        (completion, {"prompt": "x", "stop": ""}, "stop.0"),
        (completion, {"prompt": "x", "stop": ["a"] * 5}, "stop"),
        (completion, {"prompt": "\ud800"}, "prompt"),
        (chat, {"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        (chat, {"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
        (chat, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0"),
        (chat, {"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages.0.content.0.type"),
    ],
)
def test_a_wrong_value_is_named(parse: Any, values: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as error:
        parse(body(**values))
    assert (error.value.status, error.value.param) == (400, param)
    assert error.value.document()["error"]["message"].startswith(param)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'"x"', b"NaN", b'{"model": "m", "prompt": "x", "top_k": NaN}',
     b'{"model": "m", "prompt": "x", "logit_bias": {"1": 1e999}}',
     b'{"model": "m", "prompt": "x", "tools": ' + b"[" * 200 + b"]" * 200 + b"}"],
)  # fmt: skip
def test_what_is_no_request_is_refused(text: bytes) -> None:
    with pytest.raises(RequestError):
        completion(text)


@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_any_json_is_a_request_or_a_stated_error(values: dict[str, Any]) -> None:
    text = json.dumps({"model": "tiny", "prompt": "x", "messages": USER} | values).encode()
    for parse in (completion, chat):
        with contextlib.suppress(RequestError):
            generation = parse(text)
            assert json.dumps(passed_on(generation.document, "tiny"), allow_nan=False)
            assert generation.sampling.scale >= 0
            with contextlib.suppress(RequestError):
                check(generation)
