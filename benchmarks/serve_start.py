#!/usr/bin/env python3
"""Seconds from `serve.up` to the first answer of a small .gguf file, by the commands that a user types.

    .venv/bin/python benchmarks/serve_start.py [--rounds N] > benchmarks/results/serve_start.json

Each round starts a head on this machine, loads a file of random weights that llama.cpp computes on the processor, asks
for one answer, and ends the head. The goal is 30 s for all three. Needs the lock `serve`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from side_by_side import ROOT, environment, free_port, rounded

from paddock.models import random_gguf
from paddock.models.shapes import shape

GOAL_S = 30.0


def command(folder: Path, name: str, *words: str) -> Any:
    """Return what a command of serving reports. Ends the run where it fails."""
    environ = {**os.environ, **dict.fromkeys(("XDG_STATE_HOME", "XDG_CACHE_HOME", "PADDOCK_CWD"), str(folder))}
    line = [sys.executable, "-m", "paddock", f"serve.{name}", *words, "--json"]
    done = subprocess.run(line, cwd=ROOT, env=environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"serve.{name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def ask(url: str) -> None:
    body = json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": 1}).encode()
    request = urllib.request.Request(f"{url}/completions", body, {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
        assert json.load(response)["choices"]


def one(folder: Path) -> dict[str, float]:
    """Return the seconds of each step of one round."""
    moments = [time.monotonic()]
    head = command(folder, "up", "--port", str(free_port()), "--http-port", str(free_port()))
    moments.append(time.monotonic())
    try:
        command(folder, "load", "tiny.gguf", "--wait")
        moments.append(time.monotonic())
        ask(head["url"])
        moments.append(time.monotonic())
    finally:
        command(folder, "down")
    up, load, answer = (rounded(after - before) for before, after in itertools.pairwise(moments))
    return {"up": up, "load": load, "answer": answer, "whole": rounded(moments[-1] - moments[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        random_gguf.write(folder / "tiny.gguf", shape("tiny"), "q8_0")
        rounds = [one(folder) for _ in range(arguments.rounds)]
    median = rounded(statistics.median(round["whole"] for round in rounds))
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment("ray", "xllamacpp"),
        "seconds": rounds,
        "whole_seconds": {"median": median, "goal": GOAL_S, "met": median <= GOAL_S},
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
