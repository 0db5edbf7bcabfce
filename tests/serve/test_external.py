"""External engines through gateway and scheduler, before a stand-in of their HTTP interface; no Ray."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from paddock.openai.answers import Piece
from paddock.openai.http import HttpClient
from paddock.serve.admission.limits import Limits
from paddock.serve.admission.requests import Generation
from paddock.serve.cli.parameters import Load
from paddock.serve.deployment.external import Connections, External, external_of
from paddock.serve.deployment.scheduler import Scheduler
from paddock.serve.errors import ServeInputError
from tests.support.packages import need

need("prometheus_client")

from paddock.serve.gateway.app import Gateway
from tests.openai.forms import FAILED, WHOLE
from tests.openai.forms import body as published
from tests.support.asgi import Response, call, content
from tests.support.generations import generation
from tests.support.http_server import Handler, serving
from tests.support.waiting import until

KEY = "sk-short"
CALL = [
    {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}},
    {"index": 0, "function": {"arguments": '{"a": '}},
    {"index": 0, "function": {"arguments": "1}"}},
]
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 7}
SECONDS = 30


@dataclass
class StandIn:
    """Stand-in for a server with OpenAI's interface: `behaviour` is how it answers, or `body` what."""

    behaviour: str = "answers"
    body: bytes = b""
    key: str = ""
    model: str = "tiny"
    asked: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    left: threading.Event = field(default_factory=threading.Event)
    url: str = ""


class _Handler(Handler):
    stand_in: StandIn
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.stand_in.connections += 1

    def do_GET(self) -> None:
        if self._refused():
            return
        self.send(200, {"data": [{"id": self.stand_in.model}]})

    def do_POST(self) -> None:
        body = json.loads(self.body())
        self.stand_in.asked.append({"path": self.path, **body})
        behaviour = self.stand_in.behaviour
        if self._refused():
            return
        if behaviour == "takes no stream_options" and "stream_options" in body:
            self.send(422, {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]})
            return
        if behaviour.isdecimal():
            message = f"a prompt of 9 tokens, {self.stand_in.key} and inner words"
            self.send(int(behaviour), {"error": {"message": message}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True  # only a whole body leaves it open
        if self.stand_in.body:
            self._chunk(self.stand_in.body)
            self._chunk(b"")
            return
        if behaviour == "thinks":
            for _ in range(4):
                time.sleep(0.3)
                self._event({"choices": [{"delta": {"reasoning": "hm "}}]})
            self._event({"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]})
            self._chunk(b"")
            return
        chat = "messages" in body
        for number in range(3):
            text = f"b{number} "
            row = {"delta": {"content": text}} if chat else {"text": text}
            if behaviour == "calls a tool":
                row = {"delta": {"content": None, "tool_calls": [CALL[number]]}}
            if behaviour == "calls no tool":
                row = {"delta": {"tool_calls": [{"index": 0, "function": {"name": ["x"]}}]}}
            self._event({"choices": [{"index": 0, **row, "finish_reason": "length" if number == 2 else None}]})
            if behaviour == "closes":
                return
            if behaviour == "ends early":
                self._chunk(b"")
                return
            if behaviour == "malformed":
                self._chunk(b"data: {not JSON\n\n")
                return
            if behaviour == "states an error":
                self._event({"error": {"message": "out of memory"}})
                return
            if behaviour == "silent":
                self.connection.recv(1)  # returns when the other side has closed
                self.stand_in.left.set()
                return
        if behaviour in ("without usage", "takes no stream_options"):
            self._chunk(b"")
            return
        self._event({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 5}})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")
        self.close_connection = False

    def _refused(self) -> bool:
        wrong = bool(self.stand_in.key) and self.headers["Authorization"] != f"Bearer {self.stand_in.key}"
        if wrong:
            self.send(401, {})
        return wrong

    def _event(self, document: dict[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(document)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


@pytest.fixture
def server() -> Iterator[StandIn]:
    stand_in = StandIn()
    with serving(type("Own", (_Handler,), {"stand_in": stand_in})) as stand_in.url:
        yield stand_in


async def generate(external: External, generation: Generation) -> AsyncGenerator[Piece, None]:
    with closing(Connections()) as connections:
        async with aclosing(connections.generate(external, generation)) as pieces:
            async for piece in pieces:
                yield piece


class Models(Protocol):
    """What lists instances: a scheduler, or a stand-in for one."""

    def models(self) -> list[dict[str, Any]]: ...


def gateway(scheduler: Models, **limits: Any) -> Gateway:
    async def models() -> list[dict[str, Any]]:
        return scheduler.models()

    def stream(row: Mapping[str, Any], generation: Generation) -> AsyncGenerator[Piece, None]:
        external = external_of(row)
        assert external is not None
        return generate(external, generation)

    return Gateway(models, stream, frozenset(), Limits(**limits))


def ask(gate: Gateway, body: dict[str, Any], path: str = "/v1/chat/completions") -> Response:
    return asyncio.run(asyncio.wait_for(call(gate.app(), "POST", path, content(body), {}), SECONDS))


def ends(gate: Gateway) -> str:
    text = asyncio.run(call(gate.app(), "GET", "/metrics", [], {})).text
    counts = [line for line in text.splitlines() if line.startswith("inference_requests_total{")]
    return " ".join(line.split('"')[1] for line in counts if not line.endswith(" 0.0"))


def loaded(server: StandIn, key_file: Path | None = None, state: Path | None = None) -> Scheduler:
    scheduler = Scheduler(4, state)
    scheduler.load_url(External.of(server.url, "tiny", key_file), 2)
    return scheduler


def test_a_stand_in_endpoint_answers_whole_and_streamed(server: StandIn) -> None:
    gate = gateway(loaded(server))
    whole = ask(gate, CHAT).json()
    assert whole["choices"][0]["message"]["content"] == "b0 b1 b2 "
    assert (whole["choices"][0]["finish_reason"], whole["usage"]["total_tokens"]) == ("length", 16)
    body = {"model": "tiny", "prompt": "x", "stream": True}
    text = ask(gate, body, "/v1/completions").text
    assert [f'"text": "b{number} "' in text for number in range(3)] == [True] * 3
    assert text.endswith("data: [DONE]\n\n")
    assert [(row["path"], row.get("max_tokens")) for row in server.asked] == [
        ("/v1/chat/completions", 7),
        ("/v1/completions", None),
    ]
    assert ends(gate) == "answered"


def test_a_stand_in_endpoint_without_usage_is_counted_by_pieces(server: StandIn) -> None:
    server.behaviour = "without usage"
    usage = ask(gateway(loaded(server)), CHAT).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (0, 3)


def test_a_stand_in_endpoint_that_takes_no_stream_options_is_asked_without(server: StandIn) -> None:
    server.behaviour = "takes no stream_options"

    async def two() -> list[str]:
        with closing(Connections()) as connections:
            return [
                piece.text
                for _ in range(2)
                async for piece in connections.generate(External(server.url, "tiny"), generation("x", 5))
            ]

    assert asyncio.run(two()) == ["b0 ", "b1 ", "b2 "] * 2
    assert ["stream_options" in row for row in server.asked] == [True, False, False]


@pytest.mark.parametrize(
    ("behaviour", "status", "words", "end"),
    [
        ("closes", 502, "closed in the middle of the answer", "failed"),
        ("ends early", 502, "ended without a finish_reason or [DONE]", "failed"),
        ("malformed", 502, "a chunk is not JSON: {not JSON", "failed"),
        ("calls no tool", 502, "has not the form of a streamed answer", "failed"),
        ("states an error", 502, "failed: the server reports an error: out of memory", "failed"),
        ("silent", 504, "has not answered in time", "failed"),
        ("500", 502, "answers HTTP 500", "failed"),
        ("503", 503, "is busy", "refused"),
        ("400", 400, "a prompt of 9 tokens", "refused"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_fault_of_a_stand_in_endpoint_is_stated(
    server: StandIn, behaviour: str, status: int, words: str, end: str, stream: bool
) -> None:
    server.behaviour = behaviour
    gate = gateway(loaded(server), piece_seconds=0.5 if behaviour == "silent" else 60)
    response = ask(gate, {**CHAT, "stream": stream})
    assert words in response.text
    assert "data: [DONE]" not in response.text
    assert stream or response.status_code == status
    assert "inner words" not in response.text or status == 400
    assert ends(gate) == end


def test_a_stand_in_endpoint_gets_every_option_unchanged(server: StandIn) -> None:
    gate = gateway(loaded(server))
    asked = {
        "temperature": 0.7, "top_p": 0.9, "seed": 5, "stop": ["END"], "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": "auto", "top_k": 40,
        "presence_penalty": 0.5, "metadata": {"a": "b"}, "chat_template_kwargs": {"enable_thinking": False},
        "reasoning_effort": "low", "ignore_eos": True, "min_tokens": 3, "guided_json": {"type": "object"},
        "stop_token_ids": [7], "an_option_of_tomorrow": [1, {"b": 2}],
    }  # fmt: skip
    own = {"model": "tiny", "stream": True, "stream_options": {"include_usage": True}, "path": "/v1/chat/completions"}
    bare = {"messages": CHAT["messages"]}
    limited = {**bare, "max_completion_tokens": 5}
    for body in ({**CHAT, **asked}, bare, limited):
        assert ask(gate, {**body, "model": "tiny"}).status_code == 200
    assert server.asked == [{**body, **own} for body in ({**CHAT, **asked}, bare, limited)]


def test_a_message_reaches_a_stand_in_endpoint_as_it_is(server: StandIn) -> None:
    parts = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "b", "reasoning_content": "c"}]
    options = {"include_usage": False, "continuous_usage_stats": True}
    ask(gateway(loaded(server)), {**CHAT, "messages": messages, "stream_options": options})
    assert server.asked[0]["messages"] == messages
    assert server.asked[0]["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_the_operators_limit_ends_an_answer_that_has_none(server: StandIn) -> None:
    gate = gateway(loaded(server), tokens=2)
    body = {"model": "tiny", "messages": CHAT["messages"]}
    (choice,) = ask(gate, body).json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("b0 b1 ", "length")
    assert "max_tokens" not in server.asked[0]
    assert ask(gate, {**body, "max_tokens": 2}).json()["choices"][0]["message"]["content"] == "b0 b1 b2 "


def answered(server: StandIn, form: dict[str, Any], stream: bool) -> tuple[Response, dict[str, Any]]:
    """Return the gateway's answer before a server that sends this, and its message."""

    class Listed:
        def models(self) -> list[dict[str, Any]]:
            row = {"id": "tiny", "model": "tiny", "state": "serving", "url": server.url, "key_file": ""}
            return [row]

    server.body = published(form)
    body = {**CHAT, "stream": stream, "stream_options": {"include_usage": True}}
    response = ask(gateway(Listed()), body)
    if not stream:
        return response, response.json().get("choices", [{}])[0].get("message", {})
    message: dict[str, Any] = {"content": ""}
    for line in response.text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line.removeprefix("data: ")).get("choices", []):
                for name, text in choice["delta"].items():
                    message[name] = message.get(name, "") + text
    return response, message


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("form", WHOLE, ids=lambda form: form["name"])
def test_an_answer_passes_the_gateway_in_every_published_form(
    server: StandIn, form: dict[str, Any], stream: bool
) -> None:
    response, message = answered(server, form, stream)
    assert response.status_code == 200
    assert message["content"] == form["text"]
    assert {name: message[name] for name in form.get("fields", {})} == form.get("fields", {})
    last = json.loads(response.text.split("data: ")[-2]) if stream else response.json()
    if usage := form.get("usage"):
        assert [last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]] == [usage[0] or 0, usage[1]]
    assert stream is response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("form", FAILED, ids=lambda form: form["name"])
def test_an_error_in_every_published_form_is_stated_by_the_gateway(
    server: StandIn, form: dict[str, Any], stream: bool
) -> None:
    response, _ = answered(server, form, stream)
    assert form["error"] in response.text
    assert '"engine_error"' in response.text
    assert "data: [DONE]" not in response.text
    assert response.status_code == (200 if stream and '"a"' in response.text else 502)


def test_an_answer_that_is_all_reasoning_is_not_empty(server: StandIn) -> None:
    thought = {"choices": [{"delta": {"reasoning_content": "hm ", "reasoning": "hm "}}]}
    form = {"events": [*[thought] * 6, {"choices": [{"delta": {}, "finish_reason": "length"}]}, "[DONE]"]}
    response, message = answered(server, form, stream=False)
    assert (message["content"], message["reasoning_content"], message["reasoning"]) == ("", "hm " * 6, "hm " * 6)
    assert response.json()["usage"]["completion_tokens"] == 6


def test_what_a_server_says_beside_the_text_reaches_the_client(server: StandIn) -> None:
    details = {"reasoning_tokens": 1}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "completion_tokens_details": details}
    form = {"events": [
        {"system_fingerprint": "f", "choices": [{"delta": {"content": "\ud83d"}, "token_ids": [1]}]},
        {"choices": [{"delta": {"content": "\ude00"}, "finish_reason": "stop", "stop_reason": 7, "token_ids": [2]}]},
        {"choices": [], "usage": usage, "timings": {"n": 1}},
    ]}  # fmt: skip
    document = answered(server, form, stream=False)[0].json()
    (choice,) = document["choices"]
    assert (choice["message"]["content"], choice["stop_reason"], choice["token_ids"]) == ("\U0001f600", 7, [1, 2])
    assert (document["timings"], document["system_fingerprint"]) == ({"n": 1}, "f")
    assert document["usage"]["completion_tokens_details"] == details


def test_reasoning_is_a_sign_of_life(server: StandIn) -> None:
    server.behaviour = "thinks"
    gate = gateway(loaded(server), piece_seconds=0.6)
    message = ask(gate, {**CHAT, "stream": False}).json()["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("hm hm hm hm ", "b")


def test_calls_of_tools_of_a_stand_in_endpoint_reach_the_client(server: StandIn) -> None:
    server.behaviour = "calls a tool"
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c0", "type": "function", "function": {}}]},
        {"role": "tool", "tool_call_id": "c0", "content": "seen"},
    ]
    gate = gateway(loaded(server))
    message = ask(gate, {**CHAT, "messages": messages}).json()["choices"][0]["message"]
    assert message["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    ]
    assert server.asked[0]["messages"][1]["tool_calls"] == messages[1]["tool_calls"]
    assert server.asked[0]["messages"][2]["tool_call_id"] == "c0"


def test_requests_to_a_stand_in_endpoint_share_a_connection_and_its_certificates(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    build = External.client

    def client(external: External, key: str) -> HttpClient:
        if external.url == server.url:  # and not that of another test, which a thread may still watch
            made.append(threading.get_ident())
        return build(external, key)

    async def three() -> None:
        with closing(Connections()) as connections:
            for _ in range(3):
                assert [
                    piece.text async for piece in connections.generate(External(server.url, "tiny"), generation("x", 5))
                ]

    monkeypatch.setattr(External, "client", client)
    asyncio.run(three())
    assert server.connections == 1
    assert len(made) == 1
    assert made != [threading.get_ident()], "reading certificates would stop all streams"


def test_a_client_that_leaves_ends_the_request_at_a_stand_in(server: StandIn) -> None:
    server.behaviour = "silent"

    async def leave() -> str:
        pieces = generate(External(server.url, "tiny"), generation("x", 5))
        first = await anext(pieces)
        await pieces.aclose()
        return first.text

    assert asyncio.run(leave()) == "b0 "
    assert server.left.wait(SECONDS)


def test_the_key_of_a_stand_in_endpoint_stays_in_its_file(server: StandIn, tmp_path: Path) -> None:
    server.key, file, state = KEY, tmp_path / "key", tmp_path / "saved"
    file.write_text(f"{KEY}\n")
    scheduler = loaded(server, file, state)
    gate = gateway(scheduler)
    assert ask(gate, CHAT).status_code == 200
    server.behaviour = "400"
    assert "[key]" in ask(gate, CHAT).text
    assert KEY not in state.read_text() + json.dumps(scheduler.models())
    file.write_text("other")
    response = ask(gate, CHAT)
    assert (response.status_code, "refuses its API key" in response.text) == (502, True)


def test_a_stand_in_endpoint_is_listed_with_its_state(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.serve.deployment.scheduler._CHECK_EVERY_S", 0.05)
    scheduler = loaded(server)
    row = scheduler.models()[0]
    assert (row["id"], row["state"], row["url"], row["devices"]) == ("tiny", "serving", server.url, [])
    server.model = "other"
    until(lambda: scheduler.models()[0]["state"] == "unreachable")
    response = ask(gateway(scheduler), CHAT)
    assert (response.status_code, "it lists other" in response.text) == (503, True)
    server.model = "tiny"
    until(lambda: scheduler.models()[0]["state"] == "serving")
    unloaded = scheduler.unload("tiny")
    assert unloaded is not None
    assert (unloaded["id"], scheduler.models()) == ("tiny", [])
    assert ask(gateway(scheduler), CHAT).status_code == 404


def test_an_endpoint_that_is_not_there_is_unreachable_at_load() -> None:
    with serving(Handler) as url:
        pass
    row = Scheduler(4).load_url(External.of(url, "tiny", None), 2)
    assert row["state"] == "unreachable"
    assert "cannot connect to 127.0.0.1" in row["reason"]


def test_a_new_head_knows_the_stand_in_endpoint_again(server: StandIn, tmp_path: Path) -> None:
    state = tmp_path / "saved"
    loaded(server, state=state)
    again = Scheduler(4, state)
    until(lambda: [row["state"] for row in again.models()] == ["serving"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"url": "http://box:8000", "backend": "cuda"}, "--backend places a model, and --url places none"),
        ({"key_file": "key"}, "--key-file is that of an endpoint"),
        ({"url": "http://box:8000", "concurrency": "0"}, "--concurrency 0 makes no sense"),
    ],
)
def test_flags_that_do_not_go_with_a_url_are_refused(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ServeInputError, match=message):
        Load.from_flags({"model_name": "tiny", **flags}).check_url()


@pytest.mark.parametrize(
    ("url", "content_of_key", "message"),
    [
        ("http://ann:secret@box:8000", None, "it holds a user or a password"),
        ("ftp://box", None, "is no address of a server"),
        ("http://box:8000", "two words", "no API key"),
        ("http://box:8000", "\N{SNOWMAN}", "it is not ASCII"),
    ],
)
def test_an_endpoint_that_cannot_be_is_refused(
    tmp_path: Path, url: str, content_of_key: str | None, message: str
) -> None:
    file = tmp_path / "key"
    file.write_text(content_of_key or "", encoding="utf-8")
    with pytest.raises(ServeInputError, match=message) as error:
        External.of(url, "tiny", file if content_of_key else None)
    assert "secret" not in str(error.value)
    assert "words" not in str(error.value)
