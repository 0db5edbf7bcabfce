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

from tests.support.packages import need
from tests.support.serving import SECONDS, ServingCluster
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]


@pytest.fixture
def cluster(root: Path, tmp_path: Path) -> Iterator[ServingCluster]:
    """Yield a cluster without a head; all that it started is ended afterwards."""
    need("ray", "torch")
    cluster = ServingCluster(root, tmp_path)
    yield cluster
    assert cluster.run("down").returncode == 0


@pytest.mark.door("serve.up", "real Ray, devices of a file")
@pytest.mark.door("serve.join", "real Ray, devices of a file")
@pytest.mark.door("serve.nodes", "real Ray, devices of a file")
@pytest.mark.door("serve.load", "real Ray and torch on this machine's processor")
@pytest.mark.door("serve.models", "real Ray and torch on this machine's processor")
@pytest.mark.door("serve.infer", "real Ray and torch on this machine's processor")
@pytest.mark.door("serve.unload", "real Ray and torch on this machine's processor")
@pytest.mark.door("serve.down", "real Ray, devices of a file")
def test_two_agents_serve_two_models_and_one_is_placed_anew(cluster: ServingCluster) -> None:
    done = cluster.done
    cluster.devices("head", "cpu")
    cluster.devices("box", "cuda", 2)
    cluster.devices("mac", "metal")
    up = cluster.up()
    for agent in ("box", "mac"):
        cluster.join(up["address"], agent)
    assert {row["agent"] for row in done("nodes")["agents"]} == {"head", "box", "mac"}

    loaded = done("load", "tiny", "--context", "256")
    assert (loaded["class"], loaded["backend"]) == ("HomogeneousCuda", "cuda")
    assert all(device.startswith("box/cuda:") for device in loaded["devices"])
    metal = next(row for row in loaded["plan"]["unused"] if row["backend"] == "metal")
    assert "load another instance here" in metal["suggestion"]
    second = done("load", "tiny", "--context", "256", "--backend", "metal", "--wait")
    assert (second["state"], second["class"], second["devices"]) == ("serving", "HomogeneousMetal", ["mac/metal:0"])
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
            client.completions.create(model="tiny", prompt="x" * 1000)

        answer = done("infer", "tiny", "hello", "--max-tokens", "8")
        assert (answer["usage"]["completion_tokens"], len(answer["text"])) == (8, 8)
        refused = cluster.run("load", "llama-3.1-70b")
        assert (refused.returncode, "fits nowhere" in refused.stderr) == (1, True)

        cluster.kill(cluster.processes("box"))
        row = until(lambda: (row := cluster.model("tiny"))["moves"] and row["state"] == "serving" and row, SECONDS)
        assert (row["moves"], row["devices"]) == (1, ["head/cpu:0"])
        chat(client, "tiny")
        assert 'inference_requests_total{outcome="answered"} 6' in client.get(
            up["url"].removesuffix("/v1") + "/metrics", cast_to=str
        )
    assert done("unload", "tiny")["id"] == "tiny"
    assert sorted(done("down")["ended"]) == ["head", "mac"]


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
