#!/usr/bin/env python3
"""The gate of `bench.compare` on real builds: the same build again, and one that is really slowed, measured in turn.

    .venv/bin/python benchmarks/gate.py [--minutes 24] > benchmarks/results/gate.json

For an idle machine, with the lock `bench`. Three copies of this checkout are builds: OLD, the SAME again, and SLOW,
whose decode step works on for a part of the time that it took. That disturbs caches too: 0.08 makes steps slower by
about a tenth, and the document has what was measured. Each session is `paddock bench` of its build, in a process of its
own. Each round has one session of OLD and one of SAME, in random order; in some windows of rounds SLOW has one too.

A window is as many rounds as fit into the time, seven at least, which is what the gate needs. Windows share no session.
The time is that of everything until the last session; the comparisons take some seconds more.
In each `paddock bench.compare --gate` judges SAME beside OLD and OLD beside SAME, which is a repeat of the same build
either way, and in some SLOW beside both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from side_by_side import ROOT, rounded

OLD, SAME, SLOW = BUILDS = ("old", "same", "slow")
THREADS = "1"
"""Threads of torch: two that share a processor with other work wait for each other, and the noise is theirs."""
BENCH = ("bench", "--model", "tiny", "--dtype", "bf16", "--prompt", "16", "--new", "65", "--runs", "12")

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


LEAST_PAIRS = 7
"""Pairs of sessions with which one metric can fail at a rate of 0.01: 2^-7 is below it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=24, help="what it may take until the last session")
    parser.add_argument("--windows", type=int, default=10, help="windows of rounds, each a repeat either way")
    parser.add_argument("--slow-windows", type=int, default=2, help="windows in which the slow build is measured too")
    parser.add_argument("--pairs", type=int, help="rounds of a window; by default as many as the time allows")
    parser.add_argument("--part", type=float, default=0.08, help="part of a step's time that the slow build works on")
    parser.add_argument("--min-change", type=float, default=0.03, help="of bench.compare")
    arguments = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        builds = {name: build(Path(folder) / name, arguments.part if name == SLOW else 0) for name in BUILDS}
        seconds = warm_up(builds)
        left = 60 * arguments.minutes - (time.monotonic() - began)
        pairs = arguments.pairs or pairs_within(left, seconds, arguments.windows, arguments.slow_windows)
        slow = {arguments.windows * (2 * number + 1) // (2 * arguments.slow_windows)
                for number in range(arguments.slow_windows)}  # fmt: skip
        windows = [range(number * pairs, (number + 1) * pairs) for number in range(arguments.windows)]
        measure(builds, windows, slow)
        same = [(old, new, window) for window in windows for old, new in ((OLD, SAME), (SAME, OLD))]
        slowed = [(old, SLOW, windows[number]) for number in sorted(slow) for old in (OLD, SAME)]
        same_gates, slow_gates = (
            [gate(builds[old], builds[new], window, arguments.min_change) for old, new, window in comparisons]
            for comparisons in (same, slowed)
        )
        steps = {name: {number: step(build, number) for number in sessions(build)} for name, build in builds.items()}
        document = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": f"{platform.machine()}, {os.cpu_count()} processors, threads of a session: {THREADS}",
            "load": {"before": rounded(load), "after": rounded(os.getloadavg()[0])},
            "command": ["paddock", *BENCH],
            **vars(arguments),
            "pairs": pairs,
            "session_s": rounded(seconds),
            "noise_of_pairs": noise(steps[OLD], steps[SAME]),
            "same_build": summary(same_gates, passes=0),
            "slow_build": summary(slow_gates, passes=1),
            "step_p10_ms": {name: list(values.values()) for name, values in steps.items()},
            "comparisons": {"same_build": same_gates, "slow_build": slow_gates},
        }
    print(json.dumps(document, indent=1))


def warm_up(builds: dict[str, Path]) -> float:
    """Run each build once, and return the seconds of a session when its files and its products in C are there."""
    for path in builds.values():
        session(path, -1)
    began = time.monotonic()
    for path in builds.values():
        session(path, -1)
        (path / "sessions" / "-1.json").unlink()
    return (time.monotonic() - began) / len(builds)


def pairs_within(seconds: float, session_s: float, windows: int, slow_windows: int) -> int:
    """Return the rounds of a window that fit. Ends the program where they are fewer than the gate needs."""
    sessions_a_round = 2 * windows + slow_windows
    pairs = int(seconds / (session_s * sessions_a_round))
    if pairs < LEAST_PAIRS:
        warming = 3 * len(BUILDS)  # two sessions each, of which the first is slow
        minutes = math.ceil((LEAST_PAIRS * sessions_a_round + warming) * session_s / 60)
        raise SystemExit(f"a session takes {session_s:.1f} s here: --minutes {minutes}, or fewer --windows")
    return pairs


def measure(builds: dict[str, Path], windows: list[range], slow: set[int]) -> None:
    order, began, total = random.Random(0), time.monotonic(), windows[-1].stop
    for number, window in enumerate(windows):
        names = BUILDS if number in slow else (OLD, SAME)
        for round_ in window:
            for name in order.sample(names, len(names)):
                session(builds[name], round_)
            print(f"round {round_ + 1} of {total}, {(time.monotonic() - began) / 60:.1f} min", file=sys.stderr)


def noise(old: dict[int, float], same: dict[int, float]) -> float:
    """Return the standard deviation of the relative difference of two sessions side by side."""
    return rounded(statistics.stdev(math.log(same[number] / old[number]) for number in old))


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


def sessions(build: Path) -> list[int]:
    """Return the numbers of the sessions that a build has."""
    return sorted(int(file.stem) for file in (build / "sessions").glob("*.json"))


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
    ends = [min(changes), max(changes)] if changes else []
    return {"comparisons": len(gates), "right": right, "step_p10_change": ends}


def program(build: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(build), "OMP_NUM_THREADS": THREADS}
    command = [sys.executable, "-m", "paddock", *words]
    return subprocess.run(command, cwd=build, env=environ, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
