#!/usr/bin/env python3
"""Tier 1 of the smoke test beside the start of Python: how long a machine waits for its verdict.

    .venv/bin/python benchmarks/smoke_tier1.py [--runs N]

Prints one JSON document. No GPU is needed: the driver has eight made-up ones (tests/support/libnvml.c, compiled here),
which answer at once, so what is timed is the program's own work and no driver's. Each run of the smoke test stands
beside one of `python -c pass`, in turn, and the difference of the two is held against the goal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from side_by_side import ROOT, rounded

from tests.support import nvml

GOAL = 1.0
"""Seconds beyond the start of Python."""
GPUS = 8


class Spent(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="counted pairs of each")
    runs = parser.parse_args().runs
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("no C compiler here\n    fix: install one; it makes the driver that is timed")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        nvml.library(Path(folder), compiler)
        environ = {
            **os.environ,
            "LD_LIBRARY_PATH": folder,
            "FAKE_NVML_COUNT": str(GPUS),
            "PADDOCK_GPU_LEASES": folder,
            "XDG_STATE_HOME": folder,
        }
        start = timed(environ, sys.executable, "-c", "pass")
        results = [
            beyond("paddock smoke --tier 1", runs, smoke(environ, sys.executable, "-m", "paddock"), start),
            beyond("./inv smoke --tier 1", runs, smoke(environ, sys.executable, str(ROOT / "inv")), start),
        ]
    document = {
        "machine": f"{platform.machine()}, {os.cpu_count()} processors; the driver has {GPUS} made-up GPUs",
        "load": {"before": rounded(load), "after": rounded(os.getloadavg()[0])},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "results": results,
    }
    print(json.dumps(document, indent=2))


def smoke(environ: dict[str, str], *program: str) -> Callable[[], Spent]:
    """Return a run of tier 1, which has to see all GPUs and pass."""
    command = [*program, "smoke", "--tier", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    verdict = json.loads(done.stdout)
    if (verdict["verdict"], len(verdict["devices"])) != ("pass", GPUS):
        sys.exit(f"the made-up GPUs do not pass: {verdict}")
    return timed(environ, *command)


def timed(environ: dict[str, str], *command: str) -> Callable[[], Spent]:
    """Return a run of a program that gives its wall and CPU seconds: the latter say the same on a busy machine."""

    def run() -> Spent:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        return Spent(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    return run


def beyond(name: str, runs: int, tested: Callable[[], Spent], start: Callable[[], Spent]) -> dict[str, object]:
    """Return the seconds of the test beyond those of Python's start, by the median of pairs in turn."""
    tested(), start()
    pairs = [(tested(), start()) for _ in range(runs)]
    differences = sorted(first.wall - second.wall for first, second in pairs)
    median = statistics.median(differences)
    return {
        "name": f"{name}, seconds beyond the start of Python",
        "seconds": rounded(median),
        "range": [rounded(differences[0]), rounded(differences[-1])],
        "goal": f"<= {GOAL:g}",
        "met": median <= GOAL,
        "runs": runs,
        "CPU seconds beyond the start of Python": rounded(
            statistics.median(first.cpu - second.cpu for first, second in pairs)
        ),
        "whole": {
            "test": rounded(statistics.median(first.wall for first, _ in pairs)),
            "python": rounded(statistics.median(second.wall for _, second in pairs)),
        },
    }


if __name__ == "__main__":
    main()
