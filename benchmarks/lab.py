#!/usr/bin/env python3
"""The plan against the real engine's preview of the same stack; the lab's start by phase; a job from push to node.

    PADDOCK_LAB_BIN=... .venv/bin/python benchmarks/lab.py [--runs N]

Prints one JSON document. The pair runs in turn (A B A B); the lab's phases are seconds on this machine, beside the time
that importing the SDKs takes on it. The state is in a folder of its own, which goes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from plan import PLAN, SDKS
from side_by_side import ROOT, paired, process, report

from paddock.lab.errors import LabInputError
from paddock.lab.stack.engine import Engine, Programs

GOAL_UP_SECONDS = 90.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each, after one that is not")
    runs = parser.parse_args().runs
    try:
        programs = Programs.find()
    except LabInputError as error:
        sys.exit(f"{error}")
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(Path(folder, "engine"), programs, stack="dev")
        engine.prepare(secret={"paddock:githubAppKey": "made-up"})

        def preview() -> float:
            start = time.perf_counter()
            engine.command("preview", "--json", seconds=600)
            return time.perf_counter() - start

        plan = process("-c", PLAN, str(ROOT), "dev")
        results = [paired("inv plan of dev / pulumi preview of dev", 0.2, runs, plan, preview)]
        results += lab(Path(folder, "labs"), runs)
    report(results)


def lab(labs: Path, runs: int) -> list[dict[str, object]]:
    """Return the start by phase, and `runs` jobs that each grow a node from zero."""
    yardstick = process("-c", SDKS)()
    try:
        up = inv(labs, "lab.up", "--json")
        stories = [inv(labs, "lab.demo", "--job-seconds", "1", "--json") for _ in range(runs)]
    finally:
        inv(labs, "lab.down", "--json")
    start: dict[str, object] = {
        "name": "lab.up of dev, by phase",
        "seconds": {**up["seconds"], "total": up["total"], "importing the SDKs, for comparison": round(yardstick, 2)},
        "goal": f"total <= {GOAL_UP_SECONDS:g} s on two cores",
        "met": up["total"] <= GOAL_UP_SECONDS,
    }
    job: dict[str, object] = {"name": "a job of a pool at zero, seconds since its push", "jobs": runs}
    for step in ("acquired", "pod made", "node ready", "scheduled", "started"):
        seconds_of = [
            step_record["seconds"] for story in stories for step_record in story["steps"] if step_record["step"] == step
        ]
        measured = [seconds for seconds in seconds_of if seconds is not None]
        job[step] = (
            {"median": round(statistics.median(measured), 2), "max": round(max(measured), 2)} if measured else None
        )
    return [start, job]


def inv(labs: Path, *words: str) -> dict[str, Any]:
    env = {**os.environ, "PADDOCK_LAB_STATE": str(labs)}
    process = subprocess.run(
        [sys.executable, "-m", "paddock", *words], cwd=ROOT, env=env, check=True, capture_output=True
    )
    result: dict[str, Any] = json.loads(process.stdout)
    return result


if __name__ == "__main__":
    main()
