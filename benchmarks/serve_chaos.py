#!/usr/bin/env python3
"""Mixed load on a cluster whose agents are killed, one a minute: every request has to end in an answer or an error.

    .venv/bin/python benchmarks/serve_chaos.py [--minutes N] > benchmarks/results/serve_chaos.json

Starts a head and three agents as processes of this machine, with devices of files (two of cuda, one of metal, one
processor), and loads two small models with random weights, which llama.cpp computes on the processor. Clients ask over
HTTP: chats and completions, streams that they cancel, prompts that are too long, bodies that are not JSON, models that
are not there. Each minute an agent that serves a model is killed with all of its processes, and joins again; another
device is free for its model. Prints one JSON document: how the requests ended for the clients and by the gateway's own
count, and the seconds from each kill to the next answer of its model, with the parts of that time. Exits with 1 if a
request ended without an answer or an error, or if the counts disagree. Needs the locks `serve` and `dev`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openai
from side_by_side import ROOT, environment, free_port, rounded

from paddock.process import session_members
from paddock.serve.agents.home import Home

AGENTS = {"box": ("cuda", 2), "mac": ("metal", 1), "spare": ("cpu", 1)}
HEAD_MIB = 16
"""Memory of the head's device: no model fits there, so that every model is on an agent that is killed."""
MODELS = ("tiny", "tiny-2")
CLIENTS = 2
"""For each model."""
KILL_AT_S, JOIN_AFTER_S = 20.0, 12.0
"""Within each minute, and after the kill."""
ANSWER_S = 300.0
KINDS = {"chat": 35, "completion": 30, "cancelled": 15, "too long": 10, "not JSON": 5, "no model": 5}
"""Requests of a hundred."""


@dataclass(slots=True)
class Asked:
    """One request as its client saw it. `end` is answered, stated (an error, with its code), cancelled or silent."""

    kind: str
    model: str
    sent: float
    end: str = "silent"
    code: str = ""
    ended: float = 0.0
    in_stream: bool = False


@dataclass(slots=True)
class Kill:
    """An agent that was killed, and the instances that it served."""

    agent: str
    at: float
    instances: list[str]
    backends: list[str]
    join_seconds: float | None = None
    parts: dict[str, float] | None = None


@dataclass(slots=True)
class Cluster:
    """The cluster of one run, in a folder of its own."""

    folder: Path
    url: str = ""
    address: str = ""
    joined: set[str] = field(default_factory=set)
    joins: list[asyncio.Task[None]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)

    async def command(self, name: str, *words: str, attempts: int = 1) -> Any:
        """Return what a command of serving reports. Ends the run where it fails as often as it may be tried."""
        environ = {
            **os.environ, **dict.fromkeys(("XDG_STATE_HOME", "XDG_CACHE_HOME", "PADDOCK_CWD"), str(self.folder)),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "paddock", f"serve.{name}", *words, "--json", cwd=ROOT, env=environ,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        if not process.returncode:
            return json.loads(out)
        say(f"serve.{name}: {err.decode().strip()}")
        if attempts > 1:
            return await self.command(name, *words, attempts=attempts - 1)
        raise SystemExit(f"serve.{name} failed")

    def devices(self, agent: str, backend: str, count: int, mib: int = 4096) -> str:
        rows = [{"agent": agent, "backend": backend, "index": number, "memory_mib": mib} for number in range(count)]
        (self.folder / f"{agent}.devices.json").write_text(json.dumps({"devices": rows}))
        return f"{agent}.devices.json"

    async def start(self) -> None:
        """Start the head and the agents, and load the models."""
        port, http = str(free_port()), str(free_port())
        head = await self.command(
            "up", "--port", port, "--http-port", http, "--devices", self.devices("head", "cpu", 1, HEAD_MIB)
        )
        self.url, self.address = head["url"], head["address"]
        for agent in AGENTS:
            await self.join(agent)
        for id in MODELS:
            row = await self.command("load", "tiny", "--context", "1024", "--tp", "1", "--wait")
            if (row["id"], row["state"]) != (id, "serving"):
                raise SystemExit(f"{id} does not serve: {row}")

    async def join(self, agent: str) -> None:
        words = (self.address, "--name", agent, "--devices", self.devices(agent, *AGENTS[agent]))
        await self.command("join", *words, attempts=3)
        self.joined.add(agent)

    @property
    def home(self) -> Home:
        return Home.of({"XDG_STATE_HOME": str(self.folder)})

    async def kill(self, number: int) -> None:
        """Kill an agent that serves a model, the models in turn. One that has joined stays."""
        while len(self.joined) < 2:
            await asyncio.sleep(0.2)
        rows = {row["id"]: row for row in (await self.command("models", attempts=3))["models"]}
        holder = rows[MODELS[number % len(MODELS)]]["devices"][0].partition("/")[0]
        agent = holder if holder in self.joined else min(self.joined)
        self.joined.remove(agent)
        member = self.home.member(agent)
        assert member is not None
        there = [row for row in rows.values() if row["devices"][0].startswith(f"{agent}/")]
        kill = Kill(agent, time.monotonic(), [row["id"] for row in there], [row["backend"] for row in there])
        for pid in session_members(member.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kills.append(kill)
        say(f"killed {agent}, which served {', '.join(kill.instances) or 'nothing'}")
        self.joins.append(asyncio.create_task(self.join_again(kill, Path(member.folder))))

    async def join_again(self, kill: Kill, folder: Path) -> None:
        await asyncio.sleep(JOIN_AFTER_S)
        rows = {row["id"]: row for row in (await self.command("models", attempts=3))["models"]}
        kill.parts = next((rows[id]["recovery"] for id in kill.instances if rows[id]["recovery"]), None)
        shutil.rmtree(folder, ignore_errors=True)
        begun = time.monotonic()
        await self.join(kill.agent)
        kill.join_seconds = rounded(time.monotonic() - begun)
        say(f"{kill.agent} joined again")

    async def ask(self, client: openai.AsyncOpenAI, asked: Asked) -> None:
        """Send one request, and note its end."""
        try:
            asked.end = await self.sent(client, asked)
        except openai.APIStatusError as error:
            asked.end, asked.code = "stated", str(error.code or f"HTTP {error.status_code}")
        except (openai.APIConnectionError, openai.APITimeoutError) as error:
            asked.code = type(error).__name__
        except openai.APIError as error:  # an event of the stream
            asked.end, asked.code, asked.in_stream = "stated", str(error.code), True
        except Exception as error:
            asked.code = type(error).__name__
        asked.ended = time.monotonic()

    async def sent(self, client: openai.AsyncOpenAI, asked: Asked) -> str:
        """Return how the request ended. Raises what the client raises."""
        match asked.kind:
            case "not JSON":
                await client.post("/completions", content=b'{"model": "tiny", "prompt": ', cast_to=object)
                return "answered"
            case "completion" | "too long" | "no model":
                answer = await client.completions.create(
                    model="large" if asked.kind == "no model" else asked.model,
                    prompt="x " * (4000 if asked.kind == "too long" else 10),
                    max_tokens=24,
                )
                return "answered" if answer.choices[0].finish_reason else "silent"
            case _:
                stream = await client.chat.completions.create(
                    model=asked.model, messages=[{"role": "user", "content": "hello"}], stream=True,
                    max_completion_tokens=900 if asked.kind == "cancelled" else 24,
                )  # fmt: skip
                finish = None
                async with stream:
                    async for chunk in stream:
                        finish = chunk.choices[0].finish_reason
                        if asked.kind == "cancelled" and chunk.choices[0].delta.content:
                            return "cancelled"
                return "answered" if finish else "silent"

    async def client(self, model: str, seed: int, until: float) -> None:
        """Ask one request after the other."""
        order = random.Random(seed)
        http = openai.DefaultAsyncHttpxClient(trust_env=False)
        async with openai.AsyncOpenAI(
            base_url=self.url, api_key="none", max_retries=0, timeout=ANSWER_S, http_client=http
        ) as client:
            while time.monotonic() < until:
                (kind,) = order.choices(list(KINDS), list(KINDS.values()))
                asked = Asked(kind, model, time.monotonic())
                self.asked.append(asked)
                await self.ask(client, asked)
                await asyncio.sleep(order.uniform(0.05, 0.3))

    async def metrics(self) -> tuple[dict[str, int], int]:
        """Return the gateway's own count of ends, once no request is open any more, and of those that are."""
        deadline = time.monotonic() + 60
        async with openai.DefaultAsyncHttpxClient(trust_env=False) as http:
            while True:
                text = (await http.get(self.url.removesuffix("/v1") + "/metrics")).text
                counts = {
                    outcome: int(float(count))
                    for outcome, count in re.findall(r'^inference_requests_total\{outcome="(\w+)"\} (\S+)', text, re.M)
                }
                (waiting,) = re.findall(r"^inference_requests_open (\S+)", text, re.M)
                if not float(waiting) or time.monotonic() > deadline:
                    return counts, int(float(waiting))
                await asyncio.sleep(0.2)


async def run(minutes: float, seed: int) -> dict[str, Any]:
    """Return the document of one run. What was started is ended, also when this is."""
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        say("starting a head and three agents")
        try:
            await cluster.start()
            say("load begins")
            began = time.monotonic()
            clients = [
                asyncio.create_task(cluster.client(model, seed + number, began + 60 * minutes))
                for number, model in enumerate(MODELS * CLIENTS)
            ]
            for minute in range(int(minutes)):
                await asyncio.sleep(max(0.0, began + 60 * minute + KILL_AT_S - time.monotonic()))
                await cluster.kill(minute)
            await asyncio.gather(*clients)
            await asyncio.gather(*cluster.joins)
            counts, waiting = await cluster.metrics()
            rows = (await cluster.command("models", attempts=3))["models"]
        finally:
            await cluster.command("down")
    return document(cluster, counts, waiting, {row["id"]: row["moves"] for row in rows}, minutes)


def document(
    cluster: Cluster, counts: dict[str, int], waiting: int, moves: dict[str, int], minutes: float
) -> dict[str, Any]:
    ends = Counter(asked.end for asked in cluster.asked)
    codes = Counter(asked.code for asked in cluster.asked if asked.code)
    recoveries = [recovery for kill in cluster.kills if (recovery := recovered(cluster, kill)) is not None]
    # A stream may end in the moment in which its client leaves: for the gateway it was then answered, or failed.
    late = ends["cancelled"] - counts.get("cancelled", 0)
    stated = counts.get("refused", 0) + counts.get("failed", 0)
    differences = {"answered": counts.get("answered", 0) - ends["answered"], "stated": stated - ends["stated"]}
    agree = sum(counts.values()) == len(cluster.asked) and sum(differences.values()) == late >= 0
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment("ray", "xllamacpp", "openai"),
        "minutes": minutes,
        "clients": len(MODELS) * CLIENTS,
        "requests": len(cluster.asked),
        "ends": dict(sorted(ends.items())),
        "silent": ends["silent"],
        "errors": dict(codes.most_common()),
        "errors_in_streams": sum(asked.in_stream for asked in cluster.asked),
        "kinds": {
            kind: dict(sorted(Counter(a.end for a in cluster.asked if a.kind == kind).items())) for kind in KINDS
        },
        "gateway": {**counts, "open": waiting},
        "counts_agree": agree and min(differences.values()) >= 0 and not waiting,
        "kills": [
            {
                "agent": kill.agent, "served": dict(zip(kill.instances, kill.backends, strict=True)),
                "recovery_seconds": recovered(cluster, kill), "join_seconds": kill.join_seconds,
                "parts": parts(cluster, kill),
            }
            for kill in cluster.kills
        ],
        "recovery_seconds": {
            "median": rounded(statistics.median(recoveries)) if recoveries else None,
            "most": max(recoveries, default=None),
        },
        "placed_anew": moves,
    }  # fmt: skip


def recovered(cluster: Cluster, kill: Kill) -> float | None:
    """Return the seconds from a kill to the end of the first answer of its last model that was asked for after it."""
    after = [asked for asked in cluster.asked if asked.sent > kill.at and asked.end == "answered"]
    firsts = [min((asked.ended for asked in after if asked.model == id), default=None) for id in kill.instances]
    times = [first - kill.at for first in firsts if first is not None]
    return rounded(max(times)) if times and len(times) == len(firsts) else None


def parts(cluster: Cluster, kill: Kill) -> dict[str, float] | None:
    """Return the parts of a recovery in seconds: until it was noticed, placed, its process began, it served, answered.

    What the scheduler took is its own account of the model; before it lies the notice, and after it the first answer.
    None where another instance of the model answered before this one served again.
    """
    whole, own = recovered(cluster, kill), kill.parts
    if whole is None or own is None or whole < own["served"]:
        return None
    steps = {"placed": own["placed"], "begun": own["begun"] - own["placed"], "served": own["served"] - own["begun"]}
    return {"noticed_and_answered": rounded(whole - own["served"]), **{k: rounded(v) for k, v in steps.items()}}


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="of load, with a kill in each whole one")
    parser.add_argument("--seed", type=int, default=0, help="of the order of requests")
    arguments = parser.parse_args()
    result = asyncio.run(run(arguments.minutes, arguments.seed))
    print(json.dumps(result, indent=1))
    sys.exit(1 if result["silent"] or not result["counts_agree"] else 0)


if __name__ == "__main__":
    main()
