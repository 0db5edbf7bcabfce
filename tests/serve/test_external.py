"""Endpoints of other servers, before the gateway: their checks, and the dialects of stand-ins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import need

need("prometheus_client", "starlette", "uvicorn")

from paddock.serve.errors import ServeInputError
from paddock.serve.gateway import app
from paddock.serve.gateway.external import External
from tests.openai.forms import FAILED, WHOLE
from tests.openai.forms import body as published
from tests.support.gateway import COMPLETIONS, HI, Answer, Door, door, row
from tests.support.openai_server import USAGE, StandIn, stand_in

KEY = "sk-of-the-endpoint"
BODY = {"model": "tiny", "messages": HI, "max_tokens": 7}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as made:
        yield made


@pytest.fixture
def tiny(server: StandIn) -> Iterator[Door]:
    with door(row("tiny", server.url, engine="external")) as made:
        yield made


def problem(external: External, seconds: float = 5) -> str:
    return asyncio.run(external.problem(seconds))


@pytest.mark.parametrize(
    ("behaviour", "status", "words", "end"),
    [
        ("closes", 502, "closed in the middle of the answer", "failed"),
        ("ends early", 502, "finish_reason", "failed"),
        ("malformed", 502, "is not", "failed"),
        ("states an error", 502, "failed: the server reports an error: out of memory", "failed"),
        ("500", 502, "answers HTTP 500", "failed"),
        ("404", 502, "answers HTTP 404", "failed"),
        ("401", 502, "refuses its API key", "failed"),
        ("503", 503, "is busy", "refused"),
        ("429", 503, "is busy", "refused"),
        ("400", 400, "a prompt of 9 tokens", "refused"),
        ("422", 422, "a prompt of 9 tokens", "refused"),
        ("501", 501, "a prompt of 9 tokens", "refused"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_fault_of_a_stand_in_is_stated(
    tiny: Door, server: StandIn, behaviour: str, status: int, words: str, end: str, stream: bool
) -> None:
    server.behaviour = behaviour
    answer = tiny.post({**BODY, "stream": stream})
    assert words in answer.text
    assert "data: [DONE]" not in answer.text
    assert stream or answer.status == status
    assert tiny.ends() == {end: 1}
    assert tiny.counts()["out_of_memory"] == (behaviour == "states an error")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("17", 17), ("Wed, 21 Oct 2099 07:28:00 GMT", 3600), ("0", 1), ("soon", 1), ("9" * 5000, 3600)],
)
def test_a_busy_server_says_when_to_ask_again(tiny: Door, server: StandIn, said: str, seconds: int) -> None:
    server.behaviour, server.retry_after = "429", said
    answer = tiny.post(BODY)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "engine_busy", str(seconds))
    assert "a prompt of 9 tokens" in answer.text


@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_after_200_is_a_refusal(tiny: Door, server: StandIn, stream: bool) -> None:
    error = {"object": "error", "message": "the maximum context length is 9", "code": 400}
    server.body = events({"error": error}) if stream else json.dumps(error).encode()
    server.kind = "text/event-stream" if stream else "application/json"
    answer = tiny.post({**BODY, "stream": stream})
    assert (answer.status, answer.code) == (400, "context_length_exceeded")
    assert tiny.ends() == {"refused": 1}


@pytest.mark.parametrize("form", WHOLE, ids=lambda form: form["name"])
def test_an_answer_passes_in_every_published_form(tiny: Door, server: StandIn, form: dict[str, Any]) -> None:
    server.body = published(form)
    answer = tiny.post({**BODY, "stream": True, "stream_options": {"include_usage": True}})
    assert answer.status == 200
    assert server.body.startswith(answer.data.rstrip(b"\n"))
    assert tiny.ends() == {"answered": 1}
    if usage := form.get("usage"):
        counts = tiny.counts()
        assert [counts["prompt_tokens"], counts["new_tokens"]] == [usage[0] or 0, usage[1]]


@pytest.mark.parametrize("form", FAILED, ids=lambda form: form["name"])
def test_an_error_in_every_published_form_is_stated(tiny: Door, server: StandIn, form: dict[str, Any]) -> None:
    server.body = published(form)
    answer = tiny.post({**BODY, "stream": True})
    assert answer.code == "engine_error"
    assert b"data: [DONE]" not in answer.data
    assert tiny.ends() == {"failed": 1}


def events(*documents: dict[str, Any], end: bytes = b"data: [DONE]\n\n") -> bytes:
    return b"".join(b"data: " + json.dumps(document).encode() + b"\n\n" for document in documents) + end


def choice(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize("last", [{"usage": USAGE}, {"choices": [], "usage": USAGE}, {"choices": None, "usage": USAGE}])
def test_the_usage_is_withheld_from_who_did_not_ask(tiny: Door, server: StandIn, last: dict[str, Any]) -> None:
    begin = events(choice(content="a"), choice("stop"), end=b"")
    server.body = begin + events(last)
    assert tiny.post({**BODY, "stream": True}).data == begin + b"data: [DONE]\n\n"
    assert tiny.post({**BODY, "stream": True, "stream_options": {"include_usage": True}}).data == server.body
    assert tiny.counts()["new_tokens"] == 10


def test_reasoning_and_unknown_fields_pass_as_they_came(tiny: Door, server: StandIn) -> None:
    server.body = events(choice(reasoning_content="hm"), choice(reasoning="so", of_tomorrow=[1]), choice("length"))
    assert tiny.post({**BODY, "stream": True}).data == server.body
    assert tiny.counts()["new_tokens"] == 2


def test_options_and_messages_reach_the_server_as_they_came(tiny: Door, server: StandIn) -> None:
    asked = {
        "chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low", "ignore_eos": True, "n": 1,
        "min_tokens": 3, "guided_json": {}, "stop_token_ids": [7], "logprobs": True, "max_completion_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"x": 1}}]}],
    }  # fmt: skip
    body = json.dumps({"model": "tiny", **asked}).encode()
    assert tiny.post(body).status == 200
    assert server.raw == [body]


@pytest.mark.parametrize("finish", ["error", "abort", "insufficient_system_resource", "of_tomorrow"])
def test_an_end_that_is_not_ordinary_is_a_failure(tiny: Door, server: StandIn, finish: str) -> None:
    server.body = events(choice(content="a"), choice(finish))
    streamed = tiny.post({**BODY, "stream": True})
    server.body, server.kind = json.dumps(choice(finish, content="a")).encode(), "application/json"
    assert (streamed.code, tiny.post(BODY).code) == ("engine_error", "engine_error")
    assert tiny.ends() == {"failed": 2}


@pytest.mark.parametrize("more", [{"n": 2}, {"prompt": ["a", "b"]}, {"prompt": [[1, 2], [3]]}])
def test_a_choice_that_does_not_end_is_a_failure(tiny: Door, server: StandIn, more: dict[str, Any]) -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "b"}}]}
    plain = [
        json.dumps(document, separators=(",", ":")) for document in (choice(content="a"), choice(content="a"), other)
    ]
    server.body = "".join(f"data: {text}\n\n" for text in plain).encode() + events(choice("stop"))
    assert tiny.post({**BODY, "stream": True, **more}).code == "engine_error"


def test_a_server_that_takes_no_stream_options_is_asked_without(tiny: Door, server: StandIn) -> None:
    server.behaviour = "takes no stream_options"
    assert [tiny.post({**BODY, "stream": True}).status for _ in range(2)] == [200, 200]
    assert ["stream_options" in asked for asked in server.asked] == [True, False, False]
    assert tiny.counts()["new_tokens"] == 6


@pytest.mark.parametrize("stream", [True, False])
def test_the_servers_name_of_the_model_stays_with_the_server(server: StandIn, stream: bool) -> None:
    server.model = "org/Model-8B"
    with door(row("small", server.url, served="org/Model-8B", model="ours")) as made:
        answer = made.post({**BODY, "model": "ours", "stream": stream})
    models = [event["model"] for event in answer.events()[:-1]] if stream else [answer.json()["model"]]
    assert (set(models), server.asked[0]["model"]) == ({"ours"}, "org/Model-8B")


def test_a_key_stays_in_its_file_and_is_read_each_time(server: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    server.key, server.behaviour = KEY, "400"
    with door(row("tiny", server.url, key_file=str(file))) as made:
        answer = made.post(BODY)
        assert (answer.status, KEY in answer.text, "[key]" in answer.text) == (400, False, True)
        assert problem(External.of(server.url, "tiny", file)) == ""
        file.write_text("sk-another-one")
        assert made.post(BODY).code == "engine_error"
        file.unlink()
        assert "cannot be read" in made.post(BODY).text


def test_requests_to_a_server_share_a_connection(tiny: Door, server: StandIn) -> None:
    for stream in (True, False, True):
        assert tiny.post({**BODY, "stream": stream}).status == 200
    assert server.connections == 1


def test_a_path_before_v1_is_kept(server: StandIn) -> None:
    with door(row("tiny", f"{server.url}/proxy")) as made:
        made.post({"model": "tiny", "prompt": "x"}, COMPLETIONS)
    assert server.asked[0]["path"] == "/proxy/v1/completions"


def test_an_endpoint_says_what_keeps_it_from_serving(server: StandIn, tmp_path: Path) -> None:
    assert "it lists tiny" in problem(External(server.url, "other"))
    assert "cannot connect" in problem(External("http://127.0.0.1:9", "tiny"))
    server.key = KEY
    assert "refuses the API key" in problem(External(server.url, "tiny"))
    assert "cannot be read" in problem(External(server.url, "tiny", str(tmp_path / "none")))


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://a b", "http://u:p@x", "http://x?y=1", "http://x:99999", "https://x:0"]
)
def test_an_endpoint_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(ServeInputError, match=r"--url: (.|\n)*expected: (.|\n)*fix: "):
        External.of(url, "tiny", None)


@pytest.mark.parametrize("text", [None, "", "two words", "é", "a\nb"])
def test_a_key_file_without_one_key_is_refused(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "key"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ServeInputError, match="API key"):
        External.of("http://x", "tiny", file)


def through(server: StandIn, proxy: str, key: str) -> Answer:
    from paddock.serve.gateway.upstream import Upstream

    listed = row("tiny") | {"upstream": Upstream(server.url, "tiny", through=proxy, pass_key=key)}
    with door(listed) as made:
        return made.post({**BODY, "stream": True})


def test_an_agent_joins_the_gateway_to_its_loopback(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_MOVE_S", 0.3)
    heads: list[bytes] = []

    async def agent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if b"Proxy-Authorization: Bearer pass\r\n" not in heads[-1]:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        host, _, port = heads[-1].split()[1].decode().rpartition(":")
        there, to = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, to), copy(there, writer))

    async def both() -> list[Answer]:
        async with await asyncio.start_server(agent, "127.0.0.1", 0) as listening:
            address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            return [await asyncio.to_thread(through, server, address, key) for key in ("pass", "wrong")]

    right, wrong = asyncio.run(both())
    assert (right.status, right.events()[-1]) == (200, "[DONE]")
    assert (wrong.status, "HTTP 407" in wrong.text, "wrong" in wrong.text) == (502, True, False)
    assert heads[0].startswith(f"CONNECT {server.url.removeprefix('http://')} HTTP/1.1\r\n".encode())
    gone = through(server, "127.0.0.1:9", "pass")
    assert (gone.status, gone.code) == (502, "agent_lost")
