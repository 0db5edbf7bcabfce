"""HTTP of the gateway, before stand-ins for scheduler and replicas."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.openai.answers import Piece
from paddock.openai.sse import DONE, EventReader
from paddock.serve.admission.limits import Limits
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation
from tests.support.packages import need

need("prometheus_client")

from paddock.serve.gateway.app import Gateway
from tests.support.asgi import Response, call, content, request

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
        self.begun = self.ended = self.listed = 0
        self.asked: list[tuple[str, Generation]] = []
        self.failure: Exception | None = None

    async def models(self) -> list[dict[str, Any]]:
        self.listed += 1
        await asyncio.sleep(0)
        if self.failure:
            raise self.failure
        return self.instances

    async def statistics(self, instances: Any) -> dict[str, Any]:
        row = {"throttled": 3, "throttle_rate": 0.75, "out_of_memory": 2, "busy_seconds": 1.5, "batch_occupancy": None}
        return {instance["id"]: [{"replica": "r1", **row}] for instance in instances}

    async def stream(self, instance: Any, generation: Generation) -> AsyncGenerator[Piece, None]:
        id = instance["id"]
        self.asked.append((id, generation))
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


def complete(gateway: Gateway, model: str = "a", headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    return ask(gateway, "POST", "/v1/completions", {"model": model, "prompt": "x", **more}, **(headers or {}))


def gateway(cluster: Cluster, *keys: str, **limits: Any) -> Gateway:
    sums = frozenset(hashlib.sha256(key.encode()).hexdigest() for key in keys)
    return Gateway(cluster.models, cluster.stream, sums, Limits(**limits), cluster.statistics)


def ends(gate: Gateway) -> dict[str, int]:
    """Return how many requests ended how, as Prometheus reads it."""
    lines = ask(gate, "GET", "/metrics").text.splitlines()
    counts = (line.partition('{outcome="')[2].split('"} ') for line in lines if line.startswith(TOTAL))
    return {outcome: int(float(count)) for outcome, count in counts if float(count)}


def events(response: Response) -> list[Any]:
    data = [event.data for event in EventReader().feed(0, response.text.encode())]
    return [text if text == DONE else json.loads(text) for text in data]


def test_a_completion_has_text_usage_and_finish_reason() -> None:
    cluster = Cluster(instance("a"))
    response = complete(gateway(cluster))
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


def test_calls_of_tools_are_put_together_from_their_parts() -> None:
    class Tools(Cluster):
        async def stream(self, instance: Any, generation: Generation) -> AsyncGenerator[Piece, None]:
            first = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"a"'}}
            yield Piece("", 5, 1, tool_calls=(first,))
            yield Piece("", 5, 2, tool_calls=({"index": 0, "function": {"arguments": ": 1}"}},))
            yield Piece("", 5, 3, "tool_calls")

    body = {"model": "a", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}
    gate = gateway(Tools(instance("a")))
    (choice,) = ask(gate, "POST", "/v1/chat/completions", body).json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert choice["message"]["tool_calls"] == [
        {"type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}, "id": "c1"}
    ]
    streamed = events(ask(gate, "POST", "/v1/chat/completions", body | {"stream": True}))
    assert [row["choices"][0]["delta"]["tool_calls"][0]["function"] for row in streamed[1:3]] == [
        {"name": "look", "arguments": '{"a"'},
        {"arguments": ": 1}"},
    ]


def test_an_error_before_the_first_piece_is_a_status() -> None:
    full = RequestError("queue is full", 503, "queue_full")
    cluster = Cluster(instance("a"), error=full)
    response = complete(gateway(cluster), stream=True)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["error"]["code"] == "queue_full"


def test_an_error_in_the_middle_of_a_stream_is_stated_in_it() -> None:
    lost = RequestError("the agent of a has gone", 502, "agent_lost")
    gate = gateway(Cluster(instance("a"), error=lost, at=2))
    response = complete(gate, stream=True)
    *_, last = events(response)
    assert last["error"]["code"] == "agent_lost"
    assert ends(gate) == {"failed": 1}


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [("b", 503, "b is lost: agent box has gone"), ("c", 404, "there is no model 'c'"), ("a", 200, "")],
)
def test_a_model_that_does_not_serve_says_why(name: str, status: int, words: str) -> None:
    cluster = Cluster(instance("a"), instance("b", "lost", "agent box has gone"))
    response = complete(gateway(cluster), name)
    assert response.status_code == status
    assert words in response.text


def test_an_id_comes_before_a_name_and_a_name_goes_to_who_has_least_to_do() -> None:
    async def several() -> list[str]:
        cluster.gate = asyncio.Event()
        tasks = []
        for name in ("tiny-2", "tiny-2", "tiny", "x", "x", "x"):
            body = {"model": name, "prompt": "x"}
            tasks.append(asyncio.create_task(call(app, "POST", "/v1/completions", content(body), {})))
            while cluster.begun < len(tasks):
                await asyncio.sleep(0)
        cluster.gate.set()
        await asyncio.gather(*tasks)
        return [id for id, _ in cluster.asked]

    wide = instance("wide") | {"model": "x", "concurrency": 4}
    cluster = Cluster(instance("tiny-2"), instance("tiny"), instance("narrow") | {"model": "x"}, wide)
    app = gateway(cluster).app()
    assert asyncio.run(several()) == ["tiny-2", "tiny-2", "tiny", "narrow", "wide", "wide"]


def test_an_id_that_does_not_serve_leads_to_no_other_instance() -> None:
    cluster = Cluster(instance("tiny", "loading"), instance("tiny-2"))
    response = complete(gateway(cluster), "tiny")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "model_not_ready")


def test_one_instance_is_shown_by_its_id() -> None:
    gate = gateway(Cluster(instance("a"), instance("b", "lost")))
    assert ask(gate, "GET", "/v1/models/a").json() == ask(gate, "GET", "/v1/models").json()["data"][0]
    assert [ask(gate, "GET", f"/v1/models/{id}").status_code for id in ("b", "c/d")] == [503, 404]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/completions", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/embeddings", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
    ],
)
def test_a_path_or_method_that_there_is_not_is_an_error_in_json(method: str, path: str, status: int, code: str) -> None:
    gate = gateway(Cluster(instance("a")))
    response = ask(gate, method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert path in response.json()["error"]["message"]
    assert ends(gate) == ({"refused": 1} if status == 405 else {})


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"host": "evil.example:8000"}, 403, "host_not_allowed"),
        ({"host": "localhost.evil.example"}, 403, "host_not_allowed"),
        ({"host": ""}, 403, "host_not_allowed"),
        ({"host": "[::1"}, 403, "host_not_allowed"),
        ({"content-type": "text/plain"}, 415, "unsupported_media_type"),
        ({"content-type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        ({"content-type": ""}, 415, "unsupported_media_type"),
    ],
)
def test_without_keys_a_page_in_a_browser_is_refused(headers: dict[str, str], status: int, code: str) -> None:
    cluster = Cluster(instance("a"))
    open_, closed = gateway(cluster), gateway(cluster, KEY)
    response = complete(open_, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert ends(open_) == {"refused": 1}
    assert complete(closed, headers={"authorization": f"Bearer {KEY}", **headers}).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "127.9.9.9", "LOCALHOST:1"])
def test_without_keys_programs_of_this_machine_may_ask(host: str) -> None:
    headers = {"host": host, "content-type": "application/json; charset=utf-8"}
    assert complete(gateway(Cluster(instance("a"))), headers=headers).status_code == 200


def test_an_answer_beyond_the_operators_limit_is_refused() -> None:
    gate = gateway(Cluster(instance("a")), tokens=64)
    response = complete(gate, max_tokens=65)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "max_tokens")


def test_a_scheduler_that_does_not_answer_stops_no_request() -> None:
    cluster = Cluster(instance("a"))
    gate = gateway(cluster)
    assert complete(gate).status_code == 200
    cluster.failure = RuntimeError("the actor is restarting")
    gate._listing._ended = 0.0  # long ago
    assert complete(gate).status_code == 200
    assert complete(gate, "b").status_code == 404
    health, metrics = ask(gate, "GET", "/health"), ask(gate, "GET", "/metrics")
    assert (health.status_code, "does not answer" in health.json()["status"]) == (503, True)
    assert "inference_scheduler_up 0.0" in metrics.text
    cluster.failure = None
    assert ask(gate, "GET", "/health").json()["status"] == "ok"


def test_before_the_scheduler_has_answered_a_request_may_come_again() -> None:
    cluster = Cluster(instance("a"))
    cluster.failure = RuntimeError("it starts")
    gate = gateway(cluster)
    response = complete(gate)
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    assert response.json()["error"]["code"] == "scheduler_unavailable"
    assert ask(gate, "GET", "/metrics").status_code == 200
    assert ends(gate) == {"refused": 1}


@pytest.mark.parametrize("name", ["a", "unknown"])
def test_a_thousand_requests_ask_the_scheduler_a_few_times(name: str) -> None:
    cluster = Cluster(instance("a"))
    gate = gateway(cluster)

    async def storm() -> None:
        app, body = gate.app(), {"model": name, "prompt": "x"}
        await asyncio.gather(*(call(app, "POST", "/v1/completions", content(body), {}) for _ in range(1000)))

    asyncio.run(storm())
    assert cluster.listed <= 20
    assert sum(ends(gate).values()) == 1000


def test_counts_of_replicas_stand_on_the_metrics_of_the_gateway() -> None:
    text = ask(gateway(Cluster(instance("a"), instance("b", "lost"))), "GET", "/metrics").text
    labels = '{gen_ai_request_model="a",replica="r1"}'
    assert f"inference_requests_throttled{labels} 3.0" in text
    assert f"inference_throttle_rate{labels} 0.75" in text
    assert f"inference_vram_limit_errors_total{labels} 2.0" in text
    assert f"inference_busy_seconds_total{labels} 1.5" in text
    assert 'gen_ai_request_model="b"' not in text
    assert "inference_batch_occupancy{" not in text


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
    response = complete(gate, stream=stream)
    assert "without the end of its answer" in response.text
    assert "[DONE]" not in response.text
    assert ends(gate) == {"failed": 1}


@pytest.mark.parametrize("at", [0, 1])
def test_a_fault_nobody_expected_is_stated_without_its_words(at: int) -> None:
    gate = gateway(Cluster(instance("a"), error=KeyError("a secret"), at=at))
    response = complete(gate, stream=True)
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
        task = asyncio.create_task(gate.app()(request("POST", "/v1/completions", {}), receive, send))
        while not (cluster.begun if left == "in the queue" else going.is_set()):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert cluster.ended == 1
        cluster.gate = None

    asyncio.run(leave())
    assert complete(gate).status_code == 200
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
    assert 'inference_requests_refused_total{code="queue_full"} 899.0' in text


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
    response = complete(gate)
    assert (response.status_code, response.json()["error"]["code"], cluster.ended) == (504, "timeout", 1)


def test_limits_of_a_user_are_those_of_the_api_key() -> None:
    other = KEY[::-1]
    gate = gateway(Cluster(instance("a")), KEY, other, user_per_minute=2)

    def status(key: str, user: str) -> int:
        return complete(gate, headers={"authorization": f"Bearer {key}"}, user=user).status_code

    assert [status(KEY, user) for user in ("ann", "bob", "eve")] == [200, 200, 429]
    assert status(other, "ann") == 200


def test_without_keys_a_user_is_whom_the_client_names() -> None:
    gate = gateway(Cluster(instance("a")), user_per_minute=1)
    answers = [complete(gate, user=user) for user in ("ann", "ann", "bob")]
    assert [answer.status_code for answer in answers] == [200, 429, 200]
    assert 1 <= int(answers[1].headers["retry-after"]) <= 60


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8,
)  # fmt: skip
FIELDS = st.sampled_from(
    ["prompt", "messages", "max_tokens", "stream", "stream_options", "user", "n", "temperature", "top_p", "seed",
     "stop", "logprobs", "echo", "tools", "response_format"]
)  # fmt: skip


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
