"""A cluster on a real Ray, over real HTTP: agents with devices of a file, whose models run on the processor."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.serving import SECONDS, ServingCluster, cluster_in
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]


@pytest.fixture
def cluster(root: Path, tmp_path: Path) -> Iterator[ServingCluster]:
    with cluster_in(root, tmp_path) as cluster:
        yield cluster


@pytest.mark.door("serve.up", "real Ray, devices of a file")
@pytest.mark.door("serve.join", "real Ray, devices of a file")
@pytest.mark.door("serve.nodes", "real Ray, devices of a file")
@pytest.mark.door("serve.load", "real Ray and torch on this machine's processor")
@pytest.mark.door("serve.models", "real Ray and torch on this machine's processor")
@pytest.mark.door("serve.infer", "real Ray and torch on this machine's processor")
@pytest.mark.door("serve.unload", "real Ray and torch on this machine's processor")
@pytest.mark.door("serve.down", "real Ray, devices of a file")
def test_two_agents_serve_two_models_that_outlive_a_replica_and_an_agent(cluster: ServingCluster) -> None:
    done = cluster.done
    cluster.devices("head", "cpu", 2)
    cluster.devices("box", "cuda", name="NVIDIA A10G")
    up = cluster.up()
    cluster.join(up["address"], "box")
    assert {row["agent"] for row in done("nodes")["agents"]} == {"head", "box"}

    small = ("load", "tiny", "--context", "4096", "--concurrency", "2", "--mode", "conservative")
    loaded = cluster.run(*small)
    assert loaded.returncode == 0, loaded.stderr
    for text in (
        "Plan       HomogeneousCuda: bf16 on one device", "Request    16-bit weights, 2 requests at once",
        "Unused\n  head/cpu:0  another backend than cuda", "load another instance here", "tiny  ",
    ):  # fmt: skip
        assert text in loaded.stdout
    second = done(*small, "--backend", "cpu", "--wait")
    assert (second["state"], second["class"], second["devices"]) == ("serving", "HomogeneousCpu", ["head/cpu:0"])
    until(lambda: cluster.serving() == ["tiny", "tiny-2"], SECONDS)

    http_client = openai.DefaultHttpxClient(trust_env=False, timeout=SECONDS)
    with openai.OpenAI(base_url=up["url"], api_key="none", max_retries=0, http_client=http_client) as client:
        assert [model.id for model in client.models.list()] == ["tiny", "tiny-2"]
        for id in ("tiny", "tiny-2"):
            chat(client, id)
            completion(client, id)
        with pytest.raises(openai.NotFoundError, match="there is no model 'large'"):
            client.completions.create(model="large", prompt="hello")
        with pytest.raises(openai.BadRequestError, match="context"):
            client.completions.create(model="tiny", prompt="x" * 5000)
        answer = done("infer", "tiny", "hello", "--max-tokens", "8")
        assert (answer["usage"]["completion_tokens"], len(answer["text"])) == (8, 8)
        metrics = client.get(up["url"].removesuffix("/v1") + "/metrics", cast_to=str)
        assert 'inference_requests_total{outcome="answered"} 5' in metrics

        # The kernel's OOM killer sends SIGKILL, as this does.
        answers_again_after(cluster, cluster.processes("box", "ray::ServeReplica:model-tiny"))
        row = cluster.model("tiny")
        assert (row["state"], row["moves"], row["devices"]) == ("serving", 0, ["box/cuda:0"])
        assert row["recovered_seconds"] > 0
        answers_again_after(cluster, cluster.processes("box"))
        row = until(lambda: (row := cluster.model("tiny"))["state"] == "serving" and row, SECONDS)
        assert (row["moves"], row["devices"]) == (1, ["head/cpu:1"])
        assert "it ran on cuda before" in row["reason"]
        chat(client, "tiny")
    assert done("unload", "tiny")["id"] == "tiny"
    assert done("down")["ended"] == ["head"]


def answers_again_after(cluster: ServingCluster, killed: list[int]) -> None:
    """Kill processes in the middle of an answer, which ends with the reason, and wait for the next answer."""
    events = cluster.stream("tiny", 4000)
    assert "choices" in next(events)
    cluster.kill(killed)
    *_, last = events
    assert last["error"]["code"] == "agent_lost", last
    cluster.answers_again("tiny")


def chat(client: Any, model: str) -> None:
    """Ask for a streamed chat, and see that it comes in pieces and with its usage."""
    events = list(
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "hello"}], max_completion_tokens=8, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    *pieces, last = events
    text = [piece.choices[0].delta.content for piece in pieces]
    assert (len("".join(text)), last.usage.completion_tokens) == (8, 8)
    assert pieces[-1].choices[0].finish_reason == "length"


def completion(client: Any, model: str) -> None:
    """Ask for a streamed completion."""
    pieces = list(client.completions.create(model=model, prompt="hello", max_tokens=8, stream=True))
    assert len("".join(piece.choices[0].text for piece in pieces)) == 8
    assert pieces[-1].choices[0].finish_reason == "length"


@pytest.mark.explore
def test_a_storm_slow_and_leaving_clients_lose_no_request(cluster: ServingCluster) -> None:
    cluster.devices("head", "cpu")
    up = cluster.up("--queue", "100")
    assert cluster.done("load", "tiny", "--context", "4096", "--wait")["state"] == "serving"

    async def storm() -> Counter[str]:
        async def ask() -> str:
            try:
                answer = await client.completions.create(model="tiny", prompt="hello", max_tokens=2)
            except openai.InternalServerError as error:
                return f"{error.code}, again after {error.response.headers['retry-after']} s"
            return str(answer.choices[0].finish_reason)

        http_client = openai.DefaultAsyncHttpxClient(trust_env=False, timeout=SECONDS)
        async with openai.AsyncOpenAI(
            base_url=up["url"], api_key="none", max_retries=0, http_client=http_client
        ) as client:
            return Counter(await asyncio.gather(*(ask() for _ in range(1000))))

    ends = asyncio.run(storm())
    answered, refused = ends.pop("length"), ends.pop("queue_full, again after 1 s", 0)
    assert not ends
    assert (answered + refused, answered >= 100) == (1000, True)

    body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 200, "stream": True}).encode()
    http_client = openai.DefaultHttpxClient(trust_env=False, timeout=SECONDS)
    with (
        socket.create_connection(("127.0.0.1", cluster.http_port)) as slow,
        openai.OpenAI(base_url=up["url"], api_key="none", max_retries=0, http_client=http_client) as client,
    ):
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        chat(client, "tiny")  # while nobody reads the other answer
        with client.completions.create(model="tiny", prompt="x", max_tokens=4000, stream=True) as stream:
            next(stream)

        def metrics() -> str:
            return str(client.get(up["url"].removesuffix("/v1") + "/metrics", cast_to=str))

        until(lambda: "inference_requests_open 0.0" in metrics(), SECONDS)
        counts = dict(re.findall(r'^inference_requests_total\{outcome="(\w+)"\} (\S+)', metrics(), re.M))
        expected = {"answered": answered + 2, "refused": refused, "failed": 0, "cancelled": 1}
        assert counts == {outcome: f"{count:.1f}" for outcome, count in expected.items()}, metrics()
        counted = f'inference_requests_refused_total{{code="queue_full"}} {refused}.0'
        assert (counted in metrics()) == (refused > 0)
