"""Requests on their way to an engine: their bytes, the values that the gateway sets, and what is refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.serve.admission.limits import RequestError
from paddock.serve.gateway.request import PATHS, Request

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USAGE = b'"stream_options":{"include_usage": true}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["model", "messages", "max_tokens", "max_completion_tokens", "stream", "n_predict", "stream_options", "top_k"]
)


def sent(body: bytes, path: str = CHAT, most: int | None = None, model: str = "tiny", counted: bool = True) -> bytes:
    """Return what goes on of a body, to a server that knows the model by that name."""
    return Request.of(path, body, most).body(model, counted=counted)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"tiny"}',
        b' {\n "x" : [1.50, 1E2, -0.0],\t"model":"tiny", "y":"\\ud83d\\u00e9 \xc3\xa9", "stream":false }\r\n',
        b'{"model":"t\\u0069ny","max_tokens":null,"an_option_of_tomorrow":{"model":"other","a":1,"a":2}}',
        b'{"model":"tiny","stream":true,"stream_options":{"include_usage":true, "x":1}}',
    ],
)
def test_what_the_gateway_does_not_set_is_sent_unchanged(body: bytes) -> None:
    assert sent(body) == body


def test_the_model_becomes_the_servers_and_nothing_else() -> None:
    body = b'{"user":"model", "model" : "tiny","metadata":{"model":"tiny"}}'
    assert sent(body, model='a "b"') == b'{"user":"model", "model" : "a \\"b\\"","metadata":{"model":"tiny"}}'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"tiny","stream":true}', b'{"model":"tiny","stream":true,' + USAGE + b"}"),
        (b'{"stream_options":null,"model":"tiny","stream":true}',
         b'{"stream_options":{"include_usage": true},"model":"tiny","stream":true}'),
        (b'{"model":"tiny","stream":true,"stream_options":{"include_usage":false,"x":1}}',
         b'{"model":"tiny","stream":true,"stream_options":{"include_usage": true, "x": 1}}'),
        (b'{"model":"tiny","stream":true,"stream_options":[]}', b'{"model":"tiny","stream":true,"stream_options":[]}'),
    ],
)  # fmt: skip
def test_a_stream_is_asked_for_its_usage(body: bytes, expected: bytes) -> None:
    assert sent(body) == expected
    assert sent(body, counted=False) == body


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (CHAT, b'{"model":"tiny"}', b'{"model":"tiny","max_tokens":64}'),
        (CHAT, b'{"model":"tiny","max_tokens": null }', b'{"model":"tiny","max_tokens": 64 }'),
        (CHAT, b'{"model":"tiny","max_completion_tokens":5}', None),
        (COMPLETIONS, b'{"model":"tiny","max_tokens":64}', None),
        (COMPLETIONS, b'{"model":"tiny","n_predict":5}', b'{"model":"tiny","n_predict":5,"max_tokens":64}'),
        ("/v1/responses", b'{"model":"tiny"}', b'{"model":"tiny","max_output_tokens":64}'),
        ("/v1/embeddings", b'{"model":"tiny"}', None),
    ],
)
def test_the_operators_limit_bounds_what_has_none(path: str, body: bytes, expected: bytes | None) -> None:
    assert sent(body, path, 64) == (expected or body)
    assert sent(body, path) == body


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens"])
@pytest.mark.parametrize("value", ["65", "-1", "0", "6.5e9", '"5"', "true", "[5]", "NaN", "1e999"])
def test_no_value_gets_past_the_operators_limit(name: str, value: str) -> None:
    body = b'{"model":"tiny","max_tokens":1,"%s":%s}' if name != "max_tokens" else b'{"model":"tiny","%s":%s}'
    with pytest.raises(RequestError):
        sent(body % (name.encode(), value.encode()), most=64)


@pytest.mark.parametrize("name", ["model", "m\\u006fdel", "max_tokens", "stream", "other"])
def test_a_field_that_stands_twice_is_refused(name: str) -> None:
    body = '{"model":"tiny","max_tokens":1,"stream":true,"other":1,"%s":2}' % name  # noqa: UP031
    with pytest.raises(RequestError, match="it is written twice"):
        sent(body.encode())


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'"x"', b"NaN", b"{}", b'{"model":"tiny",}', b'{"model":"tiny"}x',
     b'{"model":3}', b'{"model":""}', b'{"model":"tiny","x":NaN}', b'{"model":"tiny" "x":1}', b'{"model":"tiny","x"}',
     b'\xef\xbb\xbf{"model":"tiny"}', b'{"model":"' + b"x" * 201 + b'"}', b'{1:"x","model":"tiny"}',
     b'{"model":"tiny","tools":' + b"[" * 200 + b"]" * 200 + b"}"],
)  # fmt: skip
def test_what_is_not_a_request_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as error:
        sent(body)
    assert error.value.status == 400


@given(st.dictionaries(NAMES, JSON, max_size=6), st.sampled_from(PATHS), st.none() | st.just(64))
def test_any_json_is_passed_as_json_or_refused(values: dict[str, Any], path: str, most: int | None) -> None:
    document = {"model": "tiny", **values}
    with contextlib.suppress(RequestError):
        request = Request.of(path, json.dumps(document).encode(), most)
        read = json.loads(request.body("other", counted=True))
        changed = {"model", "stream_options", "max_tokens", "max_output_tokens"}
        assert {name: read[name] for name in read.keys() - changed} == {
            name: document[name] for name in document.keys() - changed
        }
        assert read["model"] == "other"
        assert json.loads(request.body(request.model, counted=False)) == {**document, **request.limit}
