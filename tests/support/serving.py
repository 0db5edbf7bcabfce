"""A cluster of serving on this machine, by its commands, with a state of its own and devices of files."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from paddock.openai.sse import DONE, EventReader
from paddock.process import session_members
from paddock.serve.placement.device import Backend
from tests.support.packages import need
from tests.support.waiting import until

SECONDS = 300
"""Seconds for what takes tens of them on a machine that does nothing else."""

Ran = subprocess.CompletedProcess[str]
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServingCluster:
    """Commands of serving, and HTTP of the head. `folder` holds its files, its state among them."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self.folder = root, folder
        self.state = folder / "state/paddock/serve"
        state, cache = str(folder / "state"), str(folder / "cache")
        self.environ = {**os.environ, "XDG_STATE_HOME": state, "XDG_CACHE_HOME": cache}
        self.port, self.http_port = free_port(), free_port()

    def devices(self, agent: str, backend: Backend, count: int = 1, mib: int = 4096, name: str | None = None) -> None:
        """Write the devices of an agent to AGENT.json."""
        rows = [
            {"agent": agent, "backend": backend, "index": index, "memory_mib": mib, "name": name}
            for index in range(count)
        ]
        (self.folder / f"{agent}.json").write_text(json.dumps({"devices": rows}))

    def command(self, name: str, *words: str) -> list[str]:
        return [sys.executable, str(self._root / "inv"), f"serve.{name}", *words]

    def run(self, name: str, *words: str, **environ: str) -> Ran:
        """Run a command, which may fail but prints no traceback."""
        done = subprocess.run(
            self.command(name, *words), cwd=self.folder, env={**self.environ, **environ}, capture_output=True,
            text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def done(self, name: str, *words: str) -> dict[str, Any]:
        """Return what a command reports that succeeds."""
        completed = self.run(name, *words, "--json")
        assert completed.returncode == 0, completed.stderr
        document: dict[str, Any] = json.loads(completed.stdout)
        return document

    def up(self, *words: str) -> dict[str, Any]:
        ports = ("--port", str(self.port), "--http-port", str(self.http_port))
        return self.done("up", *ports, "--devices", "head.json", *words)

    def join(self, address: str, agent: str) -> dict[str, Any]:
        return self.done("join", address, "--name", agent, "--devices", f"{agent}.json")

    def model(self, id: str) -> dict[str, Any]:
        (row,) = [row for row in self.done("models")["models"] if row["id"] == id]
        return dict(row)

    def serving(self) -> list[str]:
        """Return the instances that serve; none while no head answers."""
        with suppress(OSError), _DIRECT.open(self.url("models"), timeout=SECONDS) as response:
            return [row["id"] for row in json.load(response)["data"]]
        return []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.http_port}/v1/{path}"

    def stream(self, model: str, most: int) -> Iterator[dict[str, Any]]:
        """Yield the events of an answer."""
        body = {"model": model, "prompt": "hello", "max_tokens": most, "stream": True, "ignore_eos": True}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url("completions"), json.dumps(body).encode(), headers)
        with _DIRECT.open(request, timeout=SECONDS) as response:
            reader = EventReader()
            for line in response:
                yield from (json.loads(event.data) for event in reader.feed(0, line) if event.data != DONE)

    def answers(self, model: str) -> bool:
        """Return whether an answer comes to its end."""
        with suppress(OSError):
            events = [event for event in self.stream(model, 3) if "choices" in event]
            return [event["choices"][0]["finish_reason"] for event in events][-1:] == ["length"]
        return False

    def answers_again(self, model: str) -> None:
        """Wait until the model answers."""
        until(lambda: model in self.serving() and self.answers(model), SECONDS)

    def processes(self, member: str, title: str = "") -> list[int]:
        """Return the processes of a member whose title begins so."""
        leader = json.loads((self.state / f"{member}.json").read_text())["pid"]
        return [pid for pid in session_members(leader) if _title(pid).startswith(title)]

    def engines(self, member: str) -> list[int]:
        """Return the processes of a member's engines, which have sessions of their own."""
        return [
            child for holder in self.processes(member, "ray::Holder") for child in _below(holder) if _is_engine(child)
        ]

    def kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


@contextmanager
def cluster_in(root: Path, folder: Path) -> Iterator[ServingCluster]:
    """Yield a cluster without a head; all that it started is ended afterwards."""
    need("ray", "xllamacpp")
    cluster = ServingCluster(root, folder)
    try:
        yield cluster
    finally:
        assert cluster.run("down").returncode == 0


def _title(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return "\0"


def _below(pid: int) -> list[int]:
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task").glob("*/children")
        return [
            int(child) for path in children for word in path.read_text().split() for child in (word, *_below(int(word)))
        ]
    return []


def _is_engine(pid: int) -> bool:
    return "xllama.py" in _title(pid) and ".guard" not in _title(pid)
