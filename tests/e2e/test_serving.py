"""A cluster on a real Ray, over real HTTP: agents with devices of a file, whose models llama.cpp computes here."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest

from paddock.serve.engines import xllama
from tests.support.serving import SECONDS, ServingCluster, cluster_in, free_port
from tests.support.small_gguf import small_gguf
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
MESSAGES = [{"role": "user", "content": "hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]},
    },
}


@pytest.fixture
def cluster(root: Path, tmp_path: Path) -> Iterator[ServingCluster]:
    with cluster_in(root, tmp_path) as cluster:
        yield cluster


@pytest.mark.door("serve.up", "real Ray, devices of a file")
@pytest.mark.door("serve.join", "real Ray, devices of a file")
@pytest.mark.door("serve.nodes", "real Ray, devices of a file")
@pytest.mark.door("serve.load", "real Ray and llama.cpp on this machine's processor")
@pytest.mark.door("serve.models", "real Ray and llama.cpp on this machine's processor")
@pytest.mark.door("serve.infer", "real Ray and llama.cpp on this machine's processor")
@pytest.mark.door("serve.unload", "real Ray and llama.cpp on this machine's processor")
@pytest.mark.door("serve.down", "real Ray, devices of a file")
def test_a_file_is_served_as_llama_cpp_serves_it_and_outlives_its_machine(cluster: ServingCluster) -> None:
    done, file = cluster.done, small_gguf(cluster.folder)
    cluster.devices("head", "cpu", 2)
    cluster.devices("box", "cuda", name="NVIDIA A10G")
    up = cluster.up()
    cluster.join(up["address"], "box")
    assert {row["agent"] for row in done("nodes")["agents"]} == {"head", "box"}

    small = ("load", file.name, "--context", "4096", "--concurrency", "2")
    loaded = cluster.run(*small, "--wait")
    assert loaded.returncode == 0, loaded.stderr
    for text in (
        "Plan       HomogeneousCuda: llama.cpp, Q8_0 on one device", "Request    Q8_0 weights, 2 requests at once",
        "Unused\n  head/cpu:0  another backend than cuda", "load another instance here", "tiny  ",
    ):  # fmt: skip
        assert text in loaded.stdout, loaded.stdout
    (line,) = [line.partition("curl ")[2] for line in loaded.stdout.splitlines() if line.startswith("ask ")]
    answered = subprocess.run(["curl", *shlex.split(line)], capture_output=True, text=True, check=True, timeout=SECONDS)
    assert json.loads(answered.stdout)["choices"][0]["finish_reason"] in ("length", "stop")
    second = done(*small, "--backend", "cpu", "--wait")
    assert (second["id"], second["class"], second["devices"]) == ("tiny-2", "HomogeneousCpu", ["head/cpu:0"])

    http_client = openai.DefaultHttpxClient(trust_env=False, timeout=SECONDS)
    with openai.OpenAI(base_url=up["url"], api_key="none", max_retries=0, http_client=http_client) as client:
        assert [model.id for model in client.models.list()] == ["tiny", "tiny-2"]
        for id in ("tiny", "tiny-2"):  # one behind an agent's forwarder, one on the gateway's own machine
            stream(client, id)
            calls_a_tool(client, id)
            stops(client, id)
            assert completion(up["url"], id) == directly(file)
        with pytest.raises(openai.NotFoundError, match="'tinny' is not a model here; did you mean tiny"):
            client.completions.create(model="tinny", prompt="hello")
        with pytest.raises(openai.BadRequestError) as too_long:
            client.completions.create(model="tiny", prompt="x " * 9000)
        assert too_long.value.code == "context_length_exceeded"
        answer = done("infer", "tiny", "hello", "--max-tokens", "8")
        assert answer["usage"]["completion_tokens"] <= 8
        row = cluster.model("tiny")
        assert row["statistics"]["answered"] >= 5
        assert row["engine"] == "llama.cpp"

        # The kernel's OOM killer sends SIGKILL, as this does.
        answers_again_after(cluster, cluster.processes("box", "ray::Holder"))
        row = cluster.model("tiny")
        assert (row["state"], row["moves"], row["devices"]) == ("serving", 0, ["box/cuda:0"])
        answers_again_after(cluster, cluster.processes("box"))
        row = until(lambda: (row := cluster.model("tiny"))["state"] == "serving" and row, SECONDS)
        assert (row["moves"], row["devices"]) == (1, ["head/cpu:1"])
        assert "it ran on cuda before" in row["reason"]
        assert set(row["recovery"]) == {"placed", "begun", "served"}
        stream(client, "tiny")
    assert done("unload", "tiny")["id"] == "tiny"
    assert done("down")["ended"] == ["head"]


def answers_again_after(cluster: ServingCluster, killed: list[int]) -> None:
    """Kill processes in the middle of an answer, which ends with the reason, and wait for the next answer."""
    assert killed
    events = cluster.stream("tiny", 4000)
    assert "choices" in next(events)
    cluster.kill(killed)
    *_, last = events
    assert last["error"]["code"] == "agent_lost", last
    cluster.answers_again("tiny")


def stream(client: Any, model: str) -> None:
    """Ask for a streamed chat, and see that it comes in pieces and with its usage."""
    events = list(
        client.chat.completions.create(
            model=model, messages=MESSAGES, max_completion_tokens=8, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
        )
    )  # fmt: skip
    *pieces, last = events
    assert (len(pieces) > 4, last.usage.completion_tokens) == (True, 8)
    assert [piece.choices[0].finish_reason for piece in pieces][-1] == "length"
    assert {piece.model for piece in pieces} == {model}


def calls_a_tool(client: Any, model: str) -> None:
    """Ask for the call of a tool, which llama.cpp's grammar makes random weights write."""
    answer = client.chat.completions.create(
        model=model, messages=MESSAGES, tools=[TOOL], tool_choice="required", max_tokens=1000, temperature=1.5, seed=1,
        extra_body={"min_p": 0},
    )  # fmt: skip
    calls = {
        (call.function.name, json.loads(call.function.arguments)["city"])
        for call in answer.choices[0].message.tool_calls
    }
    assert (answer.choices[0].finish_reason, calls) == ("tool_calls", {("weather", "Oslo")})


def stops(client: Any, model: str) -> None:
    """Ask with a text at which the answer stops."""
    words = {"model": model, "prompt": "hello", "temperature": 0, "max_tokens": 16, "extra_body": {"ignore_eos": True}}
    whole = client.completions.create(**words).choices[0].text
    stop = next(letter for letter in whole if letter.isalnum())
    answer = client.completions.create(**words, stop=stop).choices[0]
    assert (answer.finish_reason, answer.text) == ("stop", whole.partition(stop)[0])


def completion(url: str, model: str, key: str = "none") -> str:
    """Return the tokens of an answer at temperature 0."""
    body = {"model": model, "prompt": "hello", "temperature": 0, "max_tokens": 24, "return_tokens": True}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/completions", json.dumps(body).encode(), headers)
    with _DIRECT.open(request, timeout=SECONDS) as response:
        return str(json.load(response)["choices"][0]["text"])


def directly(file: Path) -> str:
    """Return the answer of llama.cpp itself, without Paddock."""
    port = free_port()
    command = [sys.executable, xllama.__file__, "--model", str(file), "--alias", "a", "--host", "127.0.0.1"]
    words = ["--port", str(port), "--ctx-size", "8192", "--parallel", "2"]
    with subprocess.Popen([*command, *words], stderr=subprocess.DEVNULL) as server:
        try:
            until(lambda: healthy(port), SECONDS)
            return completion(f"http://127.0.0.1:{port}/v1", "a")
        finally:
            server.terminate()


def healthy(port: int) -> bool:
    with suppress(OSError), _DIRECT.open(f"http://127.0.0.1:{port}/health", timeout=SECONDS):
        return True
    return False


@pytest.mark.explore
def test_a_storm_slow_and_leaving_clients_lose_no_request(cluster: ServingCluster) -> None:
    cluster.devices("head", "cpu")
    up = cluster.up("--queue", "100")
    assert cluster.done("load", small_gguf(cluster.folder).name, "--context", "4096", "--wait")["state"] == "serving"

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
        stream(client, "tiny")  # while nobody reads the other answer
        with client.completions.create(model="tiny", prompt="x", max_tokens=4000, stream=True) as left:
            next(left)

        def metrics() -> str:
            return str(client.get(up["url"].removesuffix("/v1") + "/metrics", cast_to=str))

        until(lambda: "inference_requests_open 0.0" in metrics(), SECONDS)
        counts = dict(re.findall(r'^inference_requests_total\{outcome="(\w+)"\} (\S+)', metrics(), re.M))
        expected = {"answered": answered + 2, "refused": refused, "failed": 0, "cancelled": 1}
        assert counts == {outcome: f"{count:.1f}" for outcome, count in expected.items()}, metrics()
        counted = f'inference_requests_refused_total{{code="queue_full"}} {refused}.0'
        assert (counted in metrics()) == (refused > 0)
