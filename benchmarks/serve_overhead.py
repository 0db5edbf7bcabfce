#!/usr/bin/env python3
"""What Ray's calls and HTTP add to a request and to a token, against the same engine called directly.

    .venv/bin/python benchmarks/serve_overhead.py [--rounds N] > benchmarks/results/serve_overhead.json

Starts a head of this machine and loads a small model with random weights, which the processor computes. A request is
answered in three ways in turn: by an engine in this process, through the handle of Ray Serve as the gateway calls it,
and over HTTP. One with a single new token gives the overhead a request, a longer one that of each further token: the
time beyond the direct one. Eight requests side by side against one by one, over HTTP, give the ratio of batching. Every
number is a median of rounds in turn, so that a machine that slows down slows all of them. Needs the lock `serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# As a replica sets it; and one thread computes, since one of several that waits for a busy processor stops a step.
os.environ |= {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}

from serving_cluster import Cluster, environment
from side_by_side import rounded

from paddock.models.shapes import shape
from paddock.openai.http import HttpClient
from paddock.openai.stream import StreamReader
from paddock.serve.admission.requests import Generation, completion
from paddock.serve.agents.home import Home
from paddock.serve.deployment.cluster import connected
from paddock.serve.deployment.replica import Replica
from paddock.serve.own.protocol import Spec

MODEL, CONTEXT, SIDE_BY_SIDE = "tiny", 512, 8
PROMPT = "What does a gateway add to an answer?"
NEW = 129
REQUEST_MS, TOKEN_MS, BATCHING = 5.0, 0.3, 1 / 4
"""Goals: milliseconds beyond the direct engine, and the ratio of seconds a token."""

Ask = Callable[[int], Awaitable[int]]
"""Takes the new tokens of an answer, and returns how many came."""


def body(new: int) -> bytes:
    request = {"model": MODEL, "prompt": PROMPT, "max_tokens": new, "stream": True}
    return json.dumps({**request, "stream_options": {"include_usage": True}}).encode()


def direct() -> Ask:
    """Return requests to an engine of this process."""
    replica = Replica(Spec(shape(MODEL), "bf16", "cpu", SIDE_BY_SIDE, CONTEXT))

    async def ask(new: int) -> int:
        count = 0
        async for piece in replica.generate(_generation(new)):
            count = piece.new_tokens
        return count

    return ask


def handle() -> Ask:
    """Return requests through Ray Serve's handle, as the gateway calls it."""
    from ray.serve.handle import DeploymentHandle

    generate = DeploymentHandle("replica", f"model-{MODEL}").options(stream=True).generate

    async def ask(new: int) -> int:
        count = 0
        async for piece in generate.remote(_generation(new)):
            count = piece.new_tokens
        return count

    return ask


def http(url: str) -> Ask:
    """Return requests over HTTP, on kept connections."""
    client = HttpClient(url.removesuffix("/v1"))

    async def ask(new: int) -> int:
        response = await client.request("POST", "/v1/completions", body(new))
        text = b"".join([piece async for piece in response.pieces])
        if response.status != 200:
            raise SystemExit(f"HTTP {response.status}: {text[-300:]!r}")
        reader = StreamReader()
        for _ in [*reader.feed(0.0, text), *reader.end(0.0)]:
            pass
        if reader.usage is None:
            raise SystemExit(f"no usage: {text[-300:]!r}")
        return reader.usage.completion

    return ask


async def measure(ways: dict[str, Ask], rounds: int) -> dict[str, Any]:
    """Return the milliseconds of every way, and what each takes beyond the direct one."""
    short: dict[str, list[float]] = {way: [] for way in ways}
    long: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 3):
        for way, ask in ways.items():
            one, many = await _seconds(ask, 1), await _seconds(ask, NEW)
            if number >= 3:  # the first ones warm up
                short[way].append(one * 1000)
                long[way].append((many - one) * 1000 / (NEW - 1))
    return {way: _beyond(short, long, way) for way in ways}


async def batching(ask: Ask, rounds: int) -> dict[str, Any]:
    """Return the seconds a token of requests side by side over those one by one."""
    ratios = []
    for number in range(rounds + 1):
        started = time.perf_counter()
        await asyncio.gather(*(_seconds(ask, NEW) for _ in range(SIDE_BY_SIDE)))
        together = time.perf_counter() - started
        started = time.perf_counter()
        for _ in range(SIDE_BY_SIDE):
            await _seconds(ask, NEW)
        if number:
            ratios.append(together / (time.perf_counter() - started))
    ratio = statistics.median(ratios)
    return {
        "name": f"seconds a token over HTTP, {SIDE_BY_SIDE} requests side by side / one by one",
        "ratio": rounded(ratio), "range": [rounded(min(ratios)), rounded(max(ratios))],
        "goal": f"<= {BATCHING:g}", "met": ratio <= BATCHING,
    }  # fmt: skip


def _beyond(short: dict[str, list[float]], long: dict[str, list[float]], way: str) -> dict[str, Any]:
    result: dict[str, Any] = {"request_ms": _spread(short[way]), "token_ms": _spread(long[way])}
    if way == "direct":
        return result
    for name, times, goal in (("request", short, REQUEST_MS), ("token", long, TOKEN_MS)):
        beyond = [own - base for own, base in zip(times[way], times["direct"], strict=True)]
        ratios = [own / base for own, base in zip(times[way], times["direct"], strict=True)]
        median = statistics.median(beyond)
        result[f"{name}_overhead_ms"] = {**_spread(beyond), "goal": f"< {goal:g}", "met": median < goal}
        result[f"{name}_ratio"] = _spread(ratios)
    return result


def _spread(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"p50": rounded(middle), "p25": rounded(low), "p75": rounded(high)}


async def _seconds(ask: Ask, new: int) -> float:
    started = time.perf_counter()
    count = await ask(new)
    seconds = time.perf_counter() - started
    if count != new:
        raise SystemExit(f"{count} tokens came, and not {new}")
    return seconds


def _generation(new: int) -> Generation:
    return completion(body(new))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="counted requests of each way and length; 40")
    rounds = parser.parse_args().rounds
    before = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="serve-overhead-") as name:
        cluster = Cluster(Path(name))
        try:
            cluster.start([("cpu", None, 4096)])
            cluster.run("load", MODEL, "--context", str(CONTEXT), "--concurrency", str(SIDE_BY_SIDE), "--wait")
            home = Home.of({"XDG_STATE_HOME": name})
            with connected(home.head(), home.token()):
                ways = {"direct": direct(), "handle": handle(), "http": http(cluster.url)}
                ways_measured, batched = asyncio.run(_both(ways, rounds))
        finally:
            cluster.run("down")
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(before, "ray", "torch"),
        "model": f"{MODEL}, random weights, bf16 on the processor; answers of 1 and {NEW} tokens, {rounds} rounds",
        "ways": ways_measured,
        "batching": batched,
    }
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


async def _both(ways: dict[str, Ask], rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    return await measure(ways, rounds), await batching(ways["http"], max(3, rounds // 8))


if __name__ == "__main__":
    main()
