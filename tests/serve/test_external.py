"""External engines through gateway and scheduler, before a stand-in of their HTTP interface; no Ray."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paddock.bench.load.client.http import HttpClient
from paddock.serve.admission.limits import Limits
from paddock.serve.admission.requests import Generation
from paddock.serve.cli.parameters import Load
from paddock.serve.deployment.external import Connections, External, external_of
from paddock.serve.deployment.replica import Piece
from paddock.serve.deployment.scheduler import Scheduler
from paddock.serve.errors import ServeInputError
from tests.support.packages import need

need("prometheus_client")

from paddock.serve.gateway.app import Gateway
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
    """Stand-in for a server with OpenAI's interface: `behaviour` is how it answers."""

    behaviour: str = "answers"
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
        if behaviour.isdecimal():
            message = f"a prompt of 9 tokens, {self.stand_in.key} and inner words"
            self.send(int(behaviour), {"error": {"message": message}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True  # only a whole body leaves it open
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
        if behaviour == "without usage":
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


def gateway(scheduler: Scheduler, **limits: Any) -> Gateway:
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
    assert [(row["path"], row["max_tokens"]) for row in server.asked] == [
        ("/v1/chat/completions", 7),
        ("/v1/completions", 128),
    ]
    assert ends(gate) == "answered"


def test_a_stand_in_endpoint_without_usage_is_counted_by_pieces(server: StandIn) -> None:
    server.behaviour = "without usage"
    usage = ask(gateway(loaded(server)), CHAT).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (0, 3)


@pytest.mark.parametrize(
    ("behaviour", "status", "words", "end"),
    [
        ("closes", 502, "closed in the middle of the answer", "failed"),
        ("ends early", 502, "without the end of its answer", "failed"),
        ("malformed", 502, "what is no answer: JSONDecodeError", "failed"),
        ("calls no tool", 502, "what is no answer: TypeError", "failed"),
        ("states an error", 502, "ended its answer with an error", "failed"),
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
    assert "[DONE]" not in response.text
    assert stream or response.status_code == status
    assert "inner words" not in response.text or status == 400
    assert ends(gate) == end


def test_a_stand_in_endpoint_gets_the_options_that_it_is_asked_with(server: StandIn) -> None:
    gate = gateway(loaded(server))
    asked = {
        "temperature": 0.7, "top_p": 0.9, "seed": 5, "stop": ["END"], "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": "auto", "top_k": 40,
        "presence_penalty": 0.5,
    }  # fmt: skip
    assert ask(gate, {**CHAT, **asked, "metadata": {"a": "b"}}).status_code == 200
    ask(gate, CHAT)
    own = {"stream": True, "stream_options": {"include_usage": True}, "path": "/v1/chat/completions"}
    assert server.asked == [{**CHAT, **asked, **own}, {**CHAT, **own}]


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
