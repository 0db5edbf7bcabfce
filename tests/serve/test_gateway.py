"""HTTP of the gateway on a socket: before llama.cpp's own server, and before stand-ins that fail as servers do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.packages import need

need("prometheus_client", "starlette", "uvicorn")

from paddock.serve.gateway import exchange
from tests.support.gateway import CHAT, COMPLETIONS, HI, Door, connect, door, row
from tests.support.llama_server import llama_server, small_model
from tests.support.openai_server import StandIn, stand_in
from tests.support.waiting import until

KEY = "a-key-of-enough-letters"
SECRET = "only-engine-and-gateway-know"
BODY = {"model": "tiny", "messages": HI}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as made:
        yield made


@pytest.fixture
def tiny(server: StandIn) -> Iterator[Door]:
    with door(row("tiny", server.url)) as made:
        yield made


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Door, str]]:
    """A gateway with a key before llama.cpp's server, and that one's address."""
    need("xllamacpp", "numpy", "gguf")
    model = small_model(tmp_path_factory.mktemp("model") / "small.gguf")
    with llama_server(model, "small", SECRET) as url, door(row("small", url, key=SECRET), key=KEY) as made:
        yield made, url


def client(at: Door) -> Any:
    import openai

    return openai.OpenAI(base_url=f"{at.url}/v1", api_key=KEY, max_retries=0)


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_are_those_of_llama_cpp_asked_directly(llama: tuple[Door, str], stream: bool) -> None:
    made, url = llama
    direct = Door(made.gateway, [], int(url.rpartition(":")[2]), key=SECRET)
    body = {"model": "small", "prompt": "The GPU", "max_tokens": 12, "temperature": 0, "seed": 1, "stream": stream}
    texts = []
    for asked in (direct, made):
        answer = asked.post(body, COMPLETIONS)
        events = answer.events()[:-1] if stream else [answer.json()]
        texts.append("".join(event["choices"][0]["text"] for event in events))
    assert texts[0] == texts[1] != ""


def test_openais_client_streams_with_usage_and_stops(llama: tuple[Door, str]) -> None:
    completions = client(llama[0]).chat.completions
    options: dict[str, Any] = {"model": "small", "messages": HI, "temperature": 0, "max_tokens": 9}
    whole = completions.create(**options)
    chunks = list(completions.create(**options, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage.model_copy() or chunks[-1].usage.completion_tokens == 9
    assert all(chunk.usage is None for chunk in completions.create(**options, stream=True))
    stopped = completions.create(**options, stop=[text[2:4]])
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].message.content == text[: text.index(text[2:4])]


def test_a_grammar_of_openais_client_reaches_llama_cpp(llama: tuple[Door, str]) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"enum": ["yes"]}}}
    answer = client(llama[0]).chat.completions.create(
        model="small", messages=HI, response_format=schema, temperature=0, extra_body={"top_k": 3}
    )
    assert (answer.choices[0].message.content, answer.model) == ('"yes"', "small")


@pytest.mark.parametrize("stream", [False, True])
def test_openais_client_gets_a_stand_ins_calls_of_tools(tiny: Door, server: StandIn, stream: bool) -> None:
    server.behaviour = "calls a tool"
    options: dict[str, Any] = {"model": "tiny", "messages": HI, "tools": [TOOL], "tool_choice": "required"}
    answer = client(tiny).chat.completions.create(**options, stream=stream)
    messages = [chunk.choices[0].delta for chunk in answer] if stream else [answer.choices[0].message]
    calls = [call.function for message in messages for call in message.tool_calls or ()]
    assert (calls[0].name, "".join(call.arguments for call in calls)) == ("look", '{"a": 1}')
    assert server.asked[0]["tools"] == [TOOL]


def test_a_prompt_beyond_the_context_has_openais_code(llama: tuple[Door, str]) -> None:
    import openai

    with pytest.raises(openai.BadRequestError) as error:
        client(llama[0]).completions.create(model="small", prompt="x " * 9000)
    assert error.value.code == "context_length_exceeded"


def test_a_client_that_leaves_frees_llama_cpps_slot(llama: tuple[Door, str]) -> None:
    made, _ = llama
    before = made.gateway.statistics().get("small", {}).get("cancelled", 0)
    body = {"model": "small", "prompt": "x", "max_tokens": 4000, "ignore_eos": True}
    for _ in range(2):
        with connect(made, {**body, "stream": True}, COMPLETIONS) as begun:
            assert begun.read(5) == b"data:"
        with pytest.raises(TimeoutError):
            made.ask("POST", COMPLETIONS, body, seconds=0.1)
    until(lambda: made.gateway.statistics()["small"]["cancelled"] - before == 4)
    answer = made.post({"model": "small", "prompt": "x", "max_tokens": 2}, COMPLETIONS)
    assert answer.status == 200


def test_keys_are_asked_of_everything_but_health_and_metrics(server: StandIn) -> None:
    with door(row("tiny", server.url), key=KEY) as made:
        wrong: dict[str, Any] = {"Authorization": "Bearer wrong"}
        assert made.post(BODY, **wrong).code == made.ask("GET", "/v1/models", **wrong).code == "invalid_api_key"
        assert made.ask("GET", "/health", Authorization="").json() == {"status": "ok", "models": 1, "serving": 1}
        assert (
            made.post(BODY).status
            == made.post(BODY, **dict[str, Any]({"Authorization": "", "x-api-key": KEY})).status
            == 200
        )
        assert "Bearer" not in made.ask("GET", "/metrics").text
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example:8000"}, "host_not_allowed"),
        ({"Host": "localhost.evil.example"}, "host_not_allowed"),
        ({"Content-Type": "text/plain"}, "unsupported_media_type"),
        ({"Content-Type": ""}, "unsupported_media_type"),
        ({"Content-Encoding": "gzip"}, "unsupported_media_type"),
    ],
)
def test_without_keys_a_page_in_a_browser_is_refused(tiny: Door, headers: dict[str, str], code: str) -> None:
    assert tiny.post(BODY, **headers).code == code
    assert tiny.post(BODY, Host="127.9.9.9:1").status == 200


def test_a_model_that_does_not_serve_says_why(tiny: Door) -> None:
    tiny.rows.append(row("b", state="lost", reason="agent box is gone"))
    lost, unknown = tiny.post({**BODY, "model": "b"}), tiny.post({**BODY, "model": "tinny"})
    assert (lost.status, lost.code, lost.headers["retry-after"]) == (503, "model_not_ready", "1")
    assert "agent box is gone" in lost.text
    assert (unknown.status, unknown.code) == (404, "model_not_found")
    assert "did you mean tiny?" in unknown.text


def test_a_models_name_goes_to_the_instance_with_least_to_do(server: StandIn) -> None:
    server.gate = threading.Event()
    rows = [row(id, server.url, model="x", concurrency=many) for id, many in (("x", 1), ("x-2", 3), ("x-3", 1))]
    rows[2]["state"] = "loading"
    with door(*rows) as made, ThreadPoolExecutor(5) as pool:
        answers = []
        for number, name in enumerate(["x-2", "x", "x", "x-2", "x"]):
            answers.append(pool.submit(made.post, {**BODY, "model": name}))
            until(lambda due=number + 1: sum(row["requests"] for row in made.gateway.statistics().values()) == due)
        server.gate.set()
        assert [answer.result().status for answer in answers] == [200] * 5
        counts = made.gateway.statistics()
        assert made.post({**BODY, "model": "x-3"}).code == "model_not_ready"
    assert (counts["x"]["answered"], counts["x-2"]["answered"]) == (2, 3)


def test_a_thousand_requests_meet_a_queue_of_a_hundred(server: StandIn) -> None:
    server.gate = threading.Event()
    with door(row("tiny", server.url, concurrency=4), queue=100) as made, ThreadPoolExecutor(200) as pool:
        answers = [pool.submit(made.post, BODY) for _ in range(1000)]
        until(lambda: sum(answer.done() for answer in answers) >= 90)
        server.gate.set()
        done = [answer.result() for answer in answers]
        ends = made.ends()
    codes = [answer.status for answer in done]
    assert set(codes) == {200, 503}
    assert ends == {"answered": codes.count(200), "refused": codes.count(503)}
    assert all(
        answer.code == "queue_full" and "retry-after" in answer.headers for answer in done if answer.status == 503
    )
    assert server.most == 4


def test_one_that_waits_and_leaves_frees_its_place(server: StandIn) -> None:
    server.gate = threading.Event()
    with door(row("tiny", server.url, concurrency=1), queue=1) as made, ThreadPoolExecutor(2) as pool:
        first = pool.submit(made.post, BODY)
        until(lambda: server.running == 1)
        with pytest.raises(TimeoutError):
            made.ask("POST", CHAT, BODY, seconds=0.2)
        until(lambda: made.gateway.statistics()["tiny"]["waiting"] == 0)
        second = pool.submit(made.post, BODY)
        until(lambda: made.gateway.statistics()["tiny"]["waiting"] == 1)
        assert made.post(BODY).code == "queue_full"
        server.gate.set()
        assert (first.result().status, second.result().status) == (200, 200)
        until(lambda: made.ends() == {"answered": 2, "refused": 1, "cancelled": 1})


def test_one_that_waits_goes_to_where_its_model_serves(server: StandIn) -> None:
    server.gate = threading.Event()
    rows = [row(id, server.url, model="x", concurrency=1) for id in ("a", "b")]
    with door(rows[0]) as made, ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(made.post, {**BODY, "model": "x"}) for _ in range(2))
        until(lambda: made.gateway.statistics().get("a", {}).get("waiting") == 1)
        made.rows[:] = [{**rows[0], "state": "unloading"}, rows[1]]
        until(lambda: server.running == 2)
        server.gate.set()
        assert (first.result().status, second.result().status) == (200, 200)
        assert made.gateway.statistics()["b"]["answered"] == 1


def test_an_instance_that_refuses_connections_is_left_for_another(server: StandIn) -> None:
    with door(row("a", model="x"), row("b", server.url, model="x")) as made:
        answers = [made.post({**BODY, "model": "x"}) for _ in range(3)]
        assert [answer.status for answer in answers] == [200] * 3
        assert made.ends() == {"answered": 3}


@pytest.mark.parametrize(
    ("state", "code"), [("lost", "agent_lost"), ("", "model_unloaded"), ("serving", "engine_error")]
)
def test_an_answer_that_breaks_off_says_what_the_listing_knows(
    tiny: Door, server: StandIn, state: str, code: str
) -> None:
    server.behaviour = "silent"
    with connect(tiny, {**BODY, "stream": True}) as answer:
        assert answer.read(5) == b"data:"
        tiny.rows[:] = [{**tiny.rows[0], "state": state}] if state else []
        server.drop()
        text = answer.read().decode()
    assert f'"code": "{code}"' in text
    assert "[DONE]" not in text
    until(lambda: tiny.ends() == {"failed": 1})


def test_a_machine_that_goes_without_a_word_is_lost(
    tiny: Door, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "LOOK_S", 0.1)
    server.behaviour = "silent"
    with connect(tiny, {**BODY, "stream": True}) as answer:
        assert answer.read(5) == b"data:"
        tiny.rows[:] = [{**tiny.rows[0], "state": "lost"}]
        assert '"code": "agent_lost"' in answer.read().decode()
    assert server.left.wait(10)


def test_a_body_of_five_mebibytes_is_refused(tiny: Door, server: StandIn) -> None:
    bodies = [{**BODY, "messages": [{"role": "user", "content": "x" * (size << 20)}]} for size in (5, 3)]
    assert [tiny.post(body).status for body in bodies] == [413, 200]
    assert [len(raw) > 3 << 20 for raw in server.raw] == [True]


def test_a_body_that_does_not_come_is_given_up(server: StandIn) -> None:
    with (
        door(row("tiny", server.url), body_seconds=0.2) as made,
        socket.create_connection(("127.0.0.1", made.port)) as raw,
    ):
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 9\r\n\r\n{"
        )
        assert b" 408 " in raw.recv(4096)
        until(lambda: made.ends() == {"refused": 1})


def test_a_slow_reader_stops_nobody_and_fills_no_memory(tiny: Door, server: StandIn) -> None:
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}}]}\n\n' % (b"x" * 60_000)
    server.body = (
        event * 800 + b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    )
    with connect(tiny, {**BODY, "stream": True}) as slow:
        time.sleep(0.5)  # the server has sent what it could by then
        assert server.running == 1, "somebody holds all of the answer"
        whole, server.body = server.body, b""
        assert tiny.post(BODY).status == 200
        assert slow.read() == whole
    until(lambda: tiny.ends() == {"answered": 2})


def test_a_model_that_falls_silent_is_a_timeout(server: StandIn) -> None:
    server.behaviour = "silent"
    with door(row("tiny", server.url), piece_seconds=0.5) as made:
        whole, streamed = made.post(BODY), made.post({**BODY, "stream": True})
        assert (whole.status, whole.code, streamed.code) == (504, "timeout", "timeout")
        assert made.ends() == {"failed": 2}
        until(lambda: made.gateway.statistics()["tiny"]["running"] == 0)
    assert server.left.wait(10)


def test_a_user_is_a_key_or_a_name(server: StandIn) -> None:
    with door(row("tiny", server.url), user_per_minute=1) as made:
        assert [made.post({**BODY, "user": user}).status for user in ("ann", "ann", "bob")] == [200, 429, 200]
    with door(row("tiny", server.url), key=KEY, user_per_minute=1) as made:
        answers = [made.post({**BODY, "user": user}) for user in ("ann", "bob")]
    assert [answer.status for answer in answers] == [200, 429]
    assert 1 <= int(answers[1].headers["retry-after"]) <= 60


def test_a_scheduler_that_does_not_answer_stops_no_request(tiny: Door) -> None:
    assert tiny.post(BODY).status == 200
    tiny.problem = RuntimeError("the actor is restarting")
    assert tiny.ask("GET", "/health").status == 503
    assert tiny.post(BODY).status == 200
    assert tiny.post({**BODY, "model": "b"}).status == 404
    assert "inference_scheduler_up 0.0" in tiny.ask("GET", "/metrics").text
    tiny.problem = None
    assert tiny.ask("GET", "/health").json()["status"] == "ok"


def test_before_the_scheduler_has_answered_a_request_may_come_again(tiny: Door) -> None:
    tiny.problem = RuntimeError("it starts")
    answer = tiny.post(BODY)
    assert (answer.status, answer.headers["retry-after"], answer.code) == (503, "2", "scheduler_unavailable")


def test_metrics_have_the_gateways_counts_and_the_engines(tiny: Door) -> None:
    tiny.rows[:] = [{**tiny.rows[0], "engine_metrics": {"kv cache": 0.5, "note": "x"}}]
    tiny.post(BODY)
    tiny.post({"model": "tiny"}, CHAT)
    tiny.post(b"{")
    text = tiny.ask("GET", "/metrics").text
    label = '{gen_ai_request_model="tiny"}'
    for line in (
        f"inference_engine_kv_cache{label} 0.5", f"inference_tokens_total{label} 10.0",
        f"inference_throttle_rate{label} 0.0", "inference_requests_open 0.0",
        'inference_errors_total{code="invalid_request_error"} 1.0', f"inference_requests_running{label} 0.0",
        f"gen_ai_server_time_to_first_token_seconds_count{label} 2.0",
    ):  # fmt: skip
        assert f"{line}\n" in text, line


def test_what_is_not_there_is_an_error_in_json(tiny: Door) -> None:
    answers = [tiny.ask("GET", COMPLETIONS), tiny.post(BODY, "/v1/audio"), tiny.ask("GET", "/v1/models/none")]
    assert [(answer.status, answer.code) for answer in answers] == [
        (405, "method_not_allowed"), (404, "not_found"), (404, "model_not_found"),
    ]  # fmt: skip
    assert answers[0].headers["allow"] == "POST"
    assert tiny.ask("GET", "/v1/models/tiny").json() == tiny.ask("GET", "/v1/models").json()["data"][0]


def test_a_mode_paces_requests_and_says_so(server: StandIn) -> None:
    with door(row("tiny", server.url, mode="conservative", paced=True)) as made, ThreadPoolExecutor(3) as pool:
        began = time.monotonic()
        assert [answer.status for answer in pool.map(made.post, [BODY] * 3)] == [200] * 3
        took, counts = time.monotonic() - began, made.gateway.statistics()["tiny"]
    assert took >= 0.2  # 100 ms from one start to the next
    assert (counts["throttled"], counts["throttle_rate"]) == (2, 0.6667)
    assert counts["paused_seconds"] > 0
    assert [alert["name"] for alert in counts["alerts"]] == ["InferenceThrottleRateHigh"]
