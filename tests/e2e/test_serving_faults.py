"""Faults of a cluster on a real Ray, over real HTTP: a wrong token, a dead rank in a stream, a head that is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from paddock.process import session_members
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]

SECONDS = 240
TOO_SMALL = {"agent": "head", "backend": "cpu", "index": 0, "memory_mib": 8}
BOX = [
    {"agent": "box", "backend": "cuda", "index": index, "memory_mib": 4096, "name": "NVIDIA A10G"} for index in (0, 1)
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """Commands of serving with a state of their own."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self.folder = root, folder
        self.state = folder / "state/paddock/serve"
        self._environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PADDOCK_CWD": str(folder)}
        self._environ["PYTHONPATH"] = str(root)
        self.ports = ("--port", str(free_port()), "--http-port", str(free_port()))

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "paddock", f"serve.{name}", *words]
        done = subprocess.run(
            command, cwd=self._root, env=self._environ, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def done(self, name: str, *words: str) -> dict[str, Any]:
        completed = self.run(name, *words, "--json")
        assert completed.returncode == 0, completed.stderr
        document: dict[str, Any] = json.loads(completed.stdout)
        return document

    def up(self) -> dict[str, Any]:
        return self.done("up", *self.ports, "--devices", "head.json")

    def serving(self) -> list[str]:
        """Return the instances that serve; none while no head answers."""
        with suppress(OSError), urllib.request.urlopen(self.url("models"), timeout=SECONDS) as response:
            return [row["id"] for row in json.load(response)["data"]]
        return []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.ports[3]}/v1/{path}"

    def stream(self, most: int) -> Iterator[dict[str, Any]]:
        """Yield the events of an answer."""
        body = {"model": "tiny", "prompt": "hello", "max_tokens": most, "stream": True}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url("completions"), json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            for line in response:
                data = line.decode().strip().removeprefix("data: ")
                if data and data != "[DONE]":
                    yield json.loads(data)

    def members(self, name: str, title: str = "") -> list[int]:
        """Return the processes of a member whose title begins so."""
        leader = json.loads((self.state / f"{name}.json").read_text())["pid"]
        return [pid for pid in session_members(leader) if Path(f"/proc/{pid}/cmdline").read_text().startswith(title)]


@pytest.fixture
def cluster(root: Path, tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster without a head; all that it started is ended afterwards."""
    pytest.importorskip("ray", reason="no ray in this environment")
    pytest.importorskip("torch", reason="no torch in this environment")
    (tmp_path / "head.json").write_text(json.dumps({"devices": [TOO_SMALL]}))
    (tmp_path / "box.json").write_text(json.dumps({"devices": BOX}))
    cluster = Cluster(root, tmp_path)
    yield cluster
    assert cluster.run("down").returncode == 0


def test_models_outlive_a_missing_agent_a_dead_rank_and_a_killed_head(cluster: Cluster) -> None:
    address = cluster.up()["address"]
    (cluster.folder / "wrong").write_text("a" * 64)
    refused = cluster.run("join", address, "--name", "box", "--token-file", "wrong")
    assert (refused.returncode, "refuses the token" in refused.stderr) == (2, True), refused.stderr
    second = cluster.run("up", *cluster.ports)
    assert (second.returncode, "a head runs here already" in second.stderr) == (2, True), second.stderr

    declared = cluster.done("load", "tiny", "--pending")
    assert (declared["state"], declared["reason"]) == ("pending", "no device holds it")
    cluster.done("join", address, "--name", "box", "--devices", "box.json")
    until(lambda: cluster.serving() == ["tiny"], SECONDS)
    (model,) = cluster.done("models")["models"]
    assert (model["tensor_parallel"], model["devices"]) == (2, ["box/cuda:0", "box/cuda:1"])

    events = cluster.stream(4000)
    assert "choices" in next(events)
    (rank,) = cluster.members("box", "ray::Rank")
    os.kill(rank, signal.SIGKILL)
    *_, last = events
    assert last["error"]["code"] == "agent_lost", last
    until(lambda: cluster.members("box", "ray::Rank") not in ([], [rank]) and cluster.serving(), SECONDS)
    until(lambda: _answers(cluster), SECONDS)

    for pid in cluster.members("head"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert cluster.serving() == []
    assert cluster.up()["address"] == address
    until(lambda: cluster.serving() == ["tiny"], SECONDS)
    (model,) = cluster.done("models")["models"]
    assert model["devices"] == ["box/cuda:0", "box/cuda:1"], "it waited for the agent that it ran on"
    until(lambda: _answers(cluster), SECONDS)


def _answers(cluster: Cluster) -> bool:
    """Return whether an answer comes to its end."""
    with suppress(OSError):
        return [event["choices"][0]["finish_reason"] for event in cluster.stream(3) if "choices" in event][-1:] == [
            "length"
        ]
    return False
