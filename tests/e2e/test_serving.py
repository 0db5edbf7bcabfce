"""A cluster on a real Ray, over real HTTP: agents with devices of a file, whose models run on the processor."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]

Ran = subprocess.CompletedProcess[str]
SECONDS = 240


@pytest.fixture
def serve(root: Path, tmp_path: Path) -> Iterator[Callable[..., Ran]]:
    """Run a command of serving; all that it started is ended afterwards."""
    pytest.importorskip("ray", reason="no ray in this environment")
    pytest.importorskip("torch", reason="no torch in this environment")
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PADDOCK_CWD": str(tmp_path)}
    environ["PYTHONPATH"] = str(root)

    def run(name: str, *words: str) -> Ran:
        command = [sys.executable, "-m", "paddock", f"serve.{name}", *words]
        completed = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, timeout=SECONDS)
        assert "Traceback" not in completed.stderr, completed.stderr
        return completed

    yield run
    assert run("down").returncode == 0


def devices(folder: Path, agent: str, backend: str, count: int) -> str:
    rows = [{"agent": agent, "backend": backend, "index": number, "memory_mib": 4096} for number in range(count)]
    (folder / f"{agent}.json").write_text(json.dumps({"devices": rows}))
    return f"{agent}.json"


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_two_agents_serve_two_models_and_one_is_placed_anew(serve: Callable[..., Ran], tmp_path: Path) -> None:
    def done(name: str, *words: str) -> dict[str, Any]:
        completed = serve(name, *words, "--json")
        assert completed.returncode == 0, completed.stderr
        document: dict[str, Any] = json.loads(completed.stdout)
        return document

    http = free_port()
    up = done("up", "--port", free_port(), "--http-port", http, "--devices", devices(tmp_path, "head", "cpu", 1))
    for agent, backend, count in (("box", "cuda", 2), ("mac", "metal", 1)):
        done("join", up["address"], "--name", agent, "--devices", devices(tmp_path, agent, backend, count))
    assert {row["agent"] for row in done("nodes")["agents"]} == {"head", "box", "mac"}

    loaded = done("load", "tiny", "--context", "256")
    assert (loaded["backend"], loaded["devices"]) == ("cuda", ["box/cuda:0"])
    metal = next(row for row in loaded["plan"]["unused"] if row["backend"] == "metal")
    assert "load another instance here" in metal["suggestion"]
    assert done("load", "tiny", "--context", "256", "--backend", "metal", "--wait")["state"] == "serving"
    until(lambda: done("models")["models"][0]["state"] == "serving", SECONDS)

    for id in ("tiny", "tiny-2"):
        answer = done("infer", id, "hello", "--max-tokens", "8")
        assert answer["usage"]["completion_tokens"] == 8
        assert len(answer["text"]) == 8
    refused = serve("load", "llama-3.1-70b")
    assert (refused.returncode, "fits nowhere" in refused.stderr) == (1, True)

    box = json.loads((tmp_path / "state/paddock/serve/box.json").read_text())
    os.killpg(box["pid"], signal.SIGKILL)
    until(lambda: done("models")["models"][0]["moves"] == 1, SECONDS)
    until(lambda: done("models")["models"][0]["state"] == "serving", SECONDS)
    assert done("models")["models"][0]["devices"] == ["head/cpu:0"]
    assert done("infer", "tiny", "hello", "--max-tokens", "4")["usage"]["completion_tokens"] == 4
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics") as response:
        assert 'inference_requests_total{outcome="answered"} 3' in response.read().decode()
    assert done("unload", "tiny")["id"] == "tiny"
    assert sorted(done("down")["ended"]) == ["head", "mac"]
