"""HTTP of the gateway, before stand-ins for scheduler and replicas."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.serve.admission.limits import Limits
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation
from paddock.serve.deployment.replica import Piece

pytest.importorskip("starlette")
pytest.importorskip("prometheus_client")

from paddock.serve.gateway.app import Gateway
from tests.support.asgi import Response, call, content

KEY = "a-key-of-enough-letters"
TOTAL = "inference_requests_total{"


def instance(id: str, state: str = "serving", reason: str = "") -> dict[str, Any]:
    return {"id": id, "model": "tiny", "state": state, "reason": reason, "since": 1.0}


class Cluster:
    """Stand-in: three pieces an answer, or an error before the piece of that number; `gate` holds each answer back."""

    def __init__(
        self, *instances: dict[str, Any], error: Exception | None = None, at: int = 0, pieces: int = 3,
        gate: asyncio.Event | None = None,
    ) -> None:  # fmt: skip
        self.instances, self.error, self.at, self.pieces, self.gate = list(instances), error, at, pieces, gate
        self.begun = self.ended = 0

    async def models(self) -> list[dict[str, Any]]:
        return self.instances

    async def stream(self, id: str, generation: Generation) -> AsyncGenerator[Piece, None]:
        self.begun += 1
        try:
            if self.gate:
                await self.gate.wait()
            for number in range(self.pieces):
                if self.error and number == self.at:
                    raise self.error
                yield Piece(f"{id}{number} ", 5, number + 1, "length" if number == 2 else "")
        finally:
            self.ended += 1


def ask(gateway: Gateway, method: str, path: str, body: Any = None, **headers: str) -> Response:
    return asyncio.run(call(gateway.app(), method, path, content(body), headers))


def gateway(cluster: Cluster, *keys: str, **limits: Any) -> Gateway:
    sums = frozenset(hashlib.sha256(key.encode()).hexdigest() for key in keys)
    return Gateway(cluster.models, cluster.stream, sums, Limits(**limits))


def ends(gate: Gateway) -> dict[str, int]:
    """Return how many requests ended how, as Prometheus reads it."""
    lines = ask(gate, "GET", "/metrics").text.splitlines()
    counts = (line.partition('{outcome="')[2].split('"} ') for line in lines if line.startswith(TOTAL))
    return {outcome: int(float(count)) for outcome, count in counts if float(count)}


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
    assert ends(gate) == {"failed": 1}


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
    assert ends(gate) == {"answered": 2, "refused": 1}
    text = ask(gate, "GET", "/metrics").text
    assert 'inference_errors_total{code="invalid_request_error"} 1.0' in text
    assert 'gen_ai_client_token_usage_sum{gen_ai_request_model="a",gen_ai_token_type="output"} 6.0' in text
    assert 'gen_ai_server_time_to_first_token_seconds_count{gen_ai_request_model="a"} 2.0' in text
    assert "inference_requests_open 0.0" in text


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_cut_off_is_an_error(stream: bool) -> None:
    gate = gateway(Cluster(instance("a"), pieces=2))
    response = ask(gate, "POST", "/v1/completions", {"model": "a", "prompt": "x", "stream": stream})
    assert "without the end of its answer" in response.text
    assert "[DONE]" not in response.text
    assert ends(gate) == {"failed": 1}


@pytest.mark.parametrize("at", [0, 1])
def test_a_fault_nobody_expected_is_stated_without_its_words(at: int) -> None:
    gate = gateway(Cluster(instance("a"), error=KeyError("a secret"), at=at))
    response = ask(gate, "POST", "/v1/completions", {"model": "a", "prompt": "x", "stream": True})
    assert "the gateway failed: KeyError" in response.text
    assert "secret" not in response.text
    assert ends(gate) == {"failed": 1}


@pytest.mark.parametrize("left", ["in the queue", "in the middle of the stream"])
def test_a_client_that_goes_away_is_counted_and_frees_its_place(left: str) -> None:
    cluster = Cluster(instance("a"))
    gate = gateway(cluster, queue=0)
    body = {"model": "a", "prompt": "x", "stream": True}

    async def leave() -> None:
        if left == "in the queue":
            cluster.gate = asyncio.Event()
        else:
            cluster.error, cluster.at = RequestError("never"), 9
        going = asyncio.Event()

        async def send(message: Any) -> None:
            if message.get("body"):
                going.set()
                await asyncio.Event().wait()

        async def receive() -> dict[str, Any]:
            return messages.pop() if messages else await asyncio.Event().wait()  # type: ignore[func-returns-value]

        messages = content(body)
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": []}
        task = asyncio.create_task(gate.app()(scope, receive, send))
        while not (cluster.begun if left == "in the queue" else going.is_set()):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert cluster.ended == 1
        cluster.gate = None

    asyncio.run(leave())
    assert ask(gate, "POST", "/v1/completions", {"model": "a", "prompt": "x"}).status_code == 200
    assert ends(gate) == {"cancelled": 1, "answered": 1}


def test_a_thousand_requests_on_a_queue_of_a_hundred_all_end() -> None:
    async def storm(gate: Gateway, cluster: Cluster) -> list[Response]:
        cluster.gate = asyncio.Event()
        body = {"model": "a", "prompt": "x", "stream": True}
        app = gate.app()
        tasks = [asyncio.create_task(call(app, "POST", "/v1/completions", content(body), {})) for _ in range(1000)]
        while cluster.begun + sum(task.done() for task in tasks) < 1000:
            await asyncio.sleep(0)
        cluster.gate.set()
        return await asyncio.gather(*tasks)

    cluster = Cluster(instance("a"))
    gate = gateway(cluster, queue=100)
    responses = asyncio.run(storm(gate, cluster))
    full = [response for response in responses if response.status_code == 503]
    assert (len(full), sum("[DONE]" in response.text for response in responses)) == (899, 101)
    assert {(row.json()["error"]["code"], row.headers["retry-after"]) for row in full} == {("queue_full", "1")}
    assert ends(gate) == {"answered": 101, "refused": 899}
    text = ask(gate, "GET", "/metrics").text
    assert "inference_requests_throttled_total 899.0" in text
    assert "inference_throttle_rate 0.899" in text


def test_a_body_beyond_the_limit_is_not_read_to_its_end() -> None:
    gate = gateway(Cluster(instance("a")), body_bytes=1000)
    messages = [{"type": "http.request", "body": b"x" * 600, "more_body": True} for _ in range(9)]
    response = asyncio.run(call(gate.app(), "POST", "/v1/completions", messages, {}))
    assert (response.status_code, len(messages)) == (413, 7)
    assert ends(gate) == {"refused": 1}


def test_a_body_that_does_not_come_is_given_up() -> None:
    gate = gateway(Cluster(instance("a")), body_seconds=0.01)
    messages = [{"type": "http.request", "body": b"{", "more_body": True}]
    response = asyncio.run(call(gate.app(), "POST", "/v1/completions", messages, {}))
    assert (response.status_code, response.json()["error"]["code"]) == (408, "request_timeout")


def test_a_model_that_says_nothing_more_is_given_up() -> None:
    cluster = Cluster(instance("a"), gate=asyncio.Event())
    gate = gateway(cluster, piece_seconds=0.01)
    response = ask(gate, "POST", "/v1/completions", {"model": "a", "prompt": "x"})
    assert (response.status_code, response.json()["error"]["code"], cluster.ended) == (504, "timeout", 1)


def test_limits_of_a_user_are_those_of_the_api_key() -> None:
    other = KEY[::-1]
    gate = gateway(Cluster(instance("a")), KEY, other, user_per_minute=2)

    def status(key: str, user: str) -> int:
        body = {"model": "a", "prompt": "x", "user": user}
        return ask(gate, "POST", "/v1/completions", body, authorization=f"Bearer {key}").status_code

    assert [status(KEY, user) for user in ("ann", "bob", "eve")] == [200, 200, 429]
    assert status(other, "ann") == 200


def test_without_keys_a_user_is_whom_the_client_names() -> None:
    gate = gateway(Cluster(instance("a")), user_per_minute=1)
    bodies = [{"model": "a", "prompt": "x", "user": user} for user in ("ann", "ann", "bob")]
    answers = [ask(gate, "POST", "/v1/completions", body) for body in bodies]
    assert [answer.status_code for answer in answers] == [200, 429, 200]
    assert 1 <= int(answers[1].headers["retry-after"]) <= 60


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8,
)  # fmt: skip
FIELDS = st.sampled_from(["prompt", "messages", "max_tokens", "stream", "stream_options", "user", "n"])


@given(
    st.binary(max_size=60)
    | st.dictionaries(FIELDS, JSON, max_size=4).map(lambda row: {"model": "a", "prompt": "x"} | row)
    | JSON.map(lambda value: {"model": value, "prompt": "x"})
)
def test_any_body_is_answered_or_refused_and_counted(body: Any) -> None:
    gate = gateway(Cluster(instance("a")))
    for path in ("/v1/completions", "/v1/chat/completions"):
        response = ask(gate, "POST", path, body)
        assert response.status_code in (200, 400, 404)
        assert response.status_code == 200 or response.json()["error"]["message"]
    assert sum(ends(gate).values()) == 2
    assert "failed" not in ends(gate)
