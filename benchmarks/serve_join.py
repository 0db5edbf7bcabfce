#!/usr/bin/env python3
"""Seconds from a machine that joins to the model that waits for it serving.

    .venv/bin/python benchmarks/serve_join.py [--rounds N] > benchmarks/results/serve_join.json

Starts a head whose device holds nothing, declares a small model with random weights as pending, and lets an agent join
with two devices of a file: the model becomes a gang of two processes, which the processor computes. Each further round
kills the agent with all of its processes, and lets it join again. A round's time is split at the moment in which Ray
knows the agent: before it Ray starts, after it the model is placed and loaded. Needs the lock `serve`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from side_by_side import ROOT, free_port, rounded

from paddock.process import session_members

LIMIT_S = 600.0
HEAD_MIB, BOX_MIB = 8, 4096
MODELS = {"one device": ("--tp", "1"), "a gang of two": ()}


class Cluster:
    """A head and an agent of this machine, by the commands of serving."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environ = {
            **os.environ, "XDG_STATE_HOME": str(folder), "PADDOCK_CWD": str(folder), "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        self._url, self._address = "", ""

    def start(self) -> None:
        port, http = str(free_port()), str(free_port())
        devices = self._devices("head", [("cpu", None, HEAD_MIB)])
        head = self.run("up", "--port", port, "--http-port", http, "--devices", devices)
        self._url, self._address = head["url"], head["address"]

    def run(self, name: str, *words: str) -> Any:
        """Return what a command reports. Ends the run where it fails."""
        answer = self._folder / "answer.json"  # a file: Ray writes lines of its own to the output
        command = [sys.executable, "-m", "paddock", f"serve.{name}", *words, f"--json={answer}"]
        done = subprocess.run(command, cwd=ROOT, env=self._environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"serve.{name}: {done.stderr.strip()}")
        return json.loads(answer.read_text())

    def join(self) -> tuple[float, float]:
        """Join the agent; return the seconds of the command, and from its end until the model serves."""
        devices = self._devices("box", [("cuda", "NVIDIA A10G", BOX_MIB)] * 2)
        began = time.monotonic()
        self.run("join", self._address, "--name", "box", "--devices", devices)
        joined = time.monotonic()
        while "tiny" not in self.serving():
            if time.monotonic() > joined + LIMIT_S:
                raise SystemExit(f"the model did not serve: {self.run('models')}")
            time.sleep(0.1)
        return joined - began, time.monotonic() - joined

    def kill(self) -> None:
        """Kill the agent, and wait until the model is lost."""
        leader = json.loads((self._folder / "paddock/serve/box.json").read_text())["pid"]
        for pid in session_members(leader):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self.serving():
            time.sleep(0.1)

    def serving(self) -> list[str]:
        with urllib.request.urlopen(f"{self._url}/models", timeout=LIMIT_S) as response:
            return [row["id"] for row in json.load(response)["data"]]

    def _devices(self, agent: str, devices: list[tuple[str, str | None, int]]) -> str:
        rows = [
            {"agent": agent, "backend": backend, "index": index, "memory_mib": mib, "name": name}
            for index, (backend, name, mib) in enumerate(devices)
        ]
        (self._folder / f"{agent}.devices.json").write_text(json.dumps({"devices": rows}))
        return f"{agent}.devices.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="joins of each model; 3")
    rounds = parser.parse_args().rounds
    began = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="serve-join-") as name:
        cluster = Cluster(Path(name))
        try:
            cluster.start()
            results = {model: measured(cluster, words, rounds) for model, words in MODELS.items()}
        finally:
            cluster.run("down")
    json.dump(
        {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": {
                "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
                "load_before": [rounded(load) for load in began],
                "load_after": [rounded(load) for load in os.getloadavg()],
                "python": platform.python_version(),
                **{package: version(package) for package in ("ray", "torch", "transformers")},
            },
            "model": "tiny, random weights, bf16, 4096 tokens",
            "seconds": results,
        },
        sys.stdout,
        indent=1,
    )
    sys.stdout.write("\n")
    return 0


def measured(cluster: Cluster, words: tuple[str, ...], rounds: int) -> Any:
    row = cluster.run("load", "tiny", "--pending", *words)
    if row["state"] != "pending":
        raise SystemExit(f"the model does not wait: {row}")
    times = []
    for number in range(rounds):
        times.append(cluster.join())
        sys.stderr.write(f"round {number + 1}: {times[-1]}\n")
        cluster.kill()
    cluster.run("unload", "tiny")
    joins, serves = zip(*times, strict=True)
    return {
        "join_command": {"median": rounded(statistics.median(joins)), "all": [rounded(value) for value in joins]},
        "joined_to_serving": {
            "median": rounded(statistics.median(serves)),
            "all": [rounded(value) for value in serves],
        },
    }


if __name__ == "__main__":
    sys.exit(main())
