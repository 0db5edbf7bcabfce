"""HTTP of the gateway, before stand-ins for scheduler and replicas."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from paddock.serve.admission.requests import Generation, RequestError
from paddock.serve.deployment.replica import Piece

pytest.importorskip("starlette")

from paddock.serve.gateway.app import Gateway

KEY = "a-key-of-enough-letters"


def instance(id: str, state: str = "serving", reason: str = "") -> dict[str, Any]:
    return {"id": id, "model": "tiny", "state": state, "reason": reason, "since": 1.0}


class Cluster:
    """Stand-in: three pieces an answer, or an error before the piece of that number."""

    def __init__(self, *instances: dict[str, Any], error: RequestError | None = None, at: int = 0) -> None:
        self.instances, self.error, self.at = list(instances), error, at
        self.ended = 0

    async def models(self) -> list[dict[str, Any]]:
        return self.instances

    async def stream(self, id: str, generation: Generation) -> AsyncIterator[Piece]:
        try:
            for number in range(3):
                if self.error and number == self.at:
                    raise self.error
                yield Piece(f"{id}{number} ", 5, number + 1, "length" if number == 2 else "")
        finally:
            self.ended += 1


@dataclass(frozen=True, slots=True)
class Response:
    status_code: int
    headers: dict[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


def ask(gateway: Gateway, method: str, path: str, body: Any = None, **headers: str) -> Response:
    """Call the application as a server does."""
    scope = {
        "type": "http", "method": method, "path": path, "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    messages = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(gateway.app()(scope, receive, send))
    start, *parts = sent
    text = b"".join(part.get("body", b"") for part in parts).decode()
    return Response(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, text)


def gateway(cluster: Cluster, *keys: str) -> Gateway:
    sums = frozenset(hashlib.sha256(key.encode()).hexdigest() for key in keys)
    return Gateway(cluster.models, cluster.stream, sums)


def events(response: Response) -> list[Any]:
    data = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    return [text if text == "[DONE]" else json.loads(text) for text in data]


def test_a_completion_has_text_usage_and_finish_reason() -> None:
    cluster = Cluster(instance("a"))
    response = ask(gateway(cluster), "POST", "/v1/completions", {"model": "a", "prompt": "x"})
    document = response.json()
    assert document["choices"][0]["text"] == "a0 a1 a2 "
    assert document["choices"][0]["finish_reason"] == "length"
    assert document["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def test_a_chat_streams_chunks_usage_and_done() -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True,
            "stream_options": {"include_usage": True}}  # fmt: skip
    response = ask(gateway(Cluster(instance("b"))), "POST", "/v1/chat/completions", body)
    first, *pieces, usage, done = events(response)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(piece["choices"][0]["delta"]["content"] for piece in pieces) == "b0 b1 b2 "
    assert (usage["usage"]["completion_tokens"], done) == (3, "[DONE]")


def test_an_error_before_the_first_piece_is_a_status() -> None:
    full = RequestError("queue is full", 503, "queue_full")
    cluster = Cluster(instance("a"), error=full)
    response = ask(gateway(cluster), "POST", "/v1/completions", {"model": "a", "prompt": "x", "stream": True})
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["error"]["code"] == "queue_full"


def test_an_error_in_the_middle_of_a_stream_is_stated_in_it() -> None:
    lost = RequestError("the agent of a has gone", 502, "agent_lost")
    gate = gateway(Cluster(instance("a"), error=lost, at=2))
    response = ask(gate, "POST", "/v1/completions", {"model": "a", "prompt": "x", "stream": True})
    *_, last = events(response)
    assert last["error"]["code"] == "agent_lost"
    assert gate.counts["failed"] == 1


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [("b", 503, "b is lost: agent box has gone"), ("c", 404, "there is no model 'c'"), ("a", 200, "")],
)
def test_a_model_that_does_not_serve_says_why(name: str, status: int, words: str) -> None:
    cluster = Cluster(instance("a"), instance("b", "lost", "agent box has gone"))
    response = ask(gateway(cluster), "POST", "/v1/completions", {"model": name, "prompt": "x"})
    assert response.status_code == status
    assert words in response.text


def test_keys_are_asked_of_everything_but_health_and_metrics() -> None:
    gate = gateway(Cluster(instance("a")), KEY)
    assert ask(gate, "GET", "/v1/models").status_code == 401
    assert ask(gate, "GET", "/v1/models", authorization="Bearer wrong").json()["error"]["code"] == "invalid_api_key"
    assert ask(gate, "GET", "/v1/models", authorization=f"Bearer {KEY}").json()["data"][0]["id"] == "a"
    assert ask(gate, "GET", "/health").json() == {"status": "ok", "models": 1, "serving": 1}


def test_every_request_is_counted_by_its_end() -> None:
    gate = gateway(Cluster(instance("a")))
    for body in ({"model": "a", "prompt": "x"}, {"model": "a", "prompt": "x", "stream": True}, {"model": "a"}):
        ask(gate, "POST", "/v1/completions", body)
    text = ask(gate, "GET", "/metrics").text
    assert 'inference_requests_total{outcome="answered"} 2' in text
    assert 'inference_requests_total{outcome="refused"} 1' in text


def test_a_client_that_goes_away_is_counted_and_ends_the_work() -> None:
    cluster = Cluster(instance("a"))
    gate = gateway(cluster)

    async def leave(generation: Generation) -> None:
        pieces = cluster.stream("a", generation)
        counted = gate._counted(await anext(pieces), pieces)
        await anext(counted)
        await counted.aclose()  # type: ignore[attr-defined]  # it is a generator
        await pieces.aclose()  # type: ignore[attr-defined]  # it is a generator

    asyncio.run(leave(Generation("a", "x", (), 3, True, False, "", False)))
    assert (gate.counts["cancelled"], cluster.ended) == (1, 1)
