#!/usr/bin/env python3
"""The gate of `bench.compare` on real builds: the same build again, and one that is really slowed, measured in turn.

    .venv/bin/python benchmarks/gate.py [--rounds N] [--pairs N] [--part 0.08] > benchmarks/results/gate.json

Three copies of this checkout are builds: OLD, the SAME again, and SLOW, whose decode step works on for a part of the
time that it took. That disturbs caches too: 0.08 makes steps slower by about a tenth, and the document has what was
measured. Each session is `paddock bench` of its build, in a process of its own. Each round has one of each, in random
order. Then `paddock bench.compare --gate` judges OLD beside SAME, SAME beside OLD and OLD beside SLOW, in
windows of as many rounds as `--pairs` says. Windows overlap; the document says how many do not. Needs the lock `bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from side_by_side import ROOT, rounded

OLD, SAME, SLOW = BUILDS = ("old", "same", "slow")
THREADS = "1"
"""Threads of torch: two that share a processor with other work wait for each other, and the noise is theirs."""
BENCH = ("bench", "--model", "tiny", "--dtype", "int8", "--prompt", "16", "--new", "65", "--runs", "12")

SLOWED = """

def _slowed(decode):
    work = torch.ones(256)

    def step(engine, token):
        begin = time.perf_counter()
        result = decode(engine, token)
        end = time.perf_counter()
        while time.perf_counter() - end < {part} * (end - begin):
            work.sum()
        return result

    return step


TorchEngine.decode = _slowed(TorchEngine.decode)
"""
"""What makes the copy of the engine slow: work until the part of the step's own time has gone by."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50, help="sessions of each build")
    parser.add_argument("--pairs", type=int, default=30, help="sessions of each build that one comparison has")
    parser.add_argument("--part", type=float, default=0.08, help="part of a step's time that the slow build works on")
    parser.add_argument("--min-change", type=float, default=0.02, help="of bench.compare")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        builds = {name: build(Path(folder) / name, arguments.part if name == SLOW else 0) for name in BUILDS}
        order = random.Random(0)
        for number in range(arguments.rounds):
            for name in order.sample(BUILDS, len(BUILDS)):
                session(builds[name], number)
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        windows = [range(start, start + arguments.pairs) for start in range(arguments.rounds - arguments.pairs + 1)]
        gates = {
            f"{old} beside {new}": [gate(builds[old], builds[new], window, arguments.min_change) for window in windows]
            for old, new in ((OLD, SAME), (SAME, OLD), (OLD, SLOW), (SAME, SLOW))
        }
        document = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": f"{platform.machine()}, {os.cpu_count()} processors, threads of a session: {THREADS}",
            "command": ["paddock", *BENCH],
            **vars(arguments),
            "windows": len(windows),
            "windows_apart": arguments.rounds // arguments.pairs,
            "same_build": summary([*gates[f"{OLD} beside {SAME}"], *gates[f"{SAME} beside {OLD}"]], passes=0),
            "slow_build": summary([*gates[f"{OLD} beside {SLOW}"], *gates[f"{SAME} beside {SLOW}"]], passes=1),
            "step_p10_ms": {
                name: [step(build, number) for number in range(arguments.rounds)] for name, build in builds.items()
            },
            "comparisons": gates,
        }
    print(json.dumps(document, indent=1))


def build(folder: Path, part: float) -> Path:
    """Copy the package, with a slower decode step if asked to, and return the folder."""
    shutil.copytree(ROOT / "paddock", folder / "paddock", ignore=shutil.ignore_patterns("__pycache__"))
    if part:
        with (folder / "paddock/bench/engine/torch_engine.py").open("a", encoding="utf-8") as file:
            file.write(SLOWED.format(part=part))
    return folder


def session(build: Path, number: int) -> None:
    """Measure the build in a fresh process, and keep what it writes."""
    file = build / "sessions" / f"{number}.json"
    file.parent.mkdir(exist_ok=True)
    program(build, *BENCH, "--json", str(file)).check_returncode()


def step(build: Path, number: int) -> float:
    """Return the quick step of a session, in milliseconds."""
    document = json.loads((build / "sessions" / f"{number}.json").read_text())
    return rounded(document["results"][0]["metrics"]["step_p10_ms"]["sessions"][0])


def gate(old: Path, new: Path, window: range, min_change: float) -> dict[str, Any]:
    """Return the exit code of the gate on the sessions of a window, and each metric's change and probability."""
    with tempfile.TemporaryDirectory() as folder:
        for build in (old, new):
            chosen = Path(folder) / build.name
            chosen.mkdir()
            for number in window:
                shutil.copy(build / "sessions" / f"{number}.json", chosen)
        sides = (str(Path(folder) / old.name), str(Path(folder) / new.name))
        document = Path(folder) / "comparison.json"
        flags = ("--gate", "--min-change", str(min_change), "--json", str(document))
        code = program(ROOT, "bench.compare", *sides, *flags).returncode
        rows = json.loads(document.read_text())["rows"]
    if not all(row["paired"] for row in rows):
        raise SystemExit("the sessions are not in turn")
    metrics = {row["metric"]: {"change": rounded(row["change"]), "p": rounded(row["probability"])} for row in rows}
    return {"first": window.start, "exit": code, "metrics": metrics}


def summary(gates: list[dict[str, Any]], passes: int) -> dict[str, Any]:
    """Return how many gates ended as they should."""
    right = sum(gate["exit"] == passes for gate in gates)
    changes = [gate["metrics"]["step_p10_ms"]["change"] for gate in gates]
    return {"comparisons": len(gates), "right": right, "step_p10_change": [min(changes), max(changes)]}


def program(build: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(build), "OMP_NUM_THREADS": THREADS}
    command = [sys.executable, "-m", "paddock", *words]
    return subprocess.run(command, cwd=build, env=environ, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
