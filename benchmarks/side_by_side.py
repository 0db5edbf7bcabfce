"""Ratios of runs side by side on one machine, so that they mean something on another.

Pairs run in turn (A B A B), so that a machine that slows down slows both.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def process(
    *arguments: str, program: str = sys.executable, env: Mapping[str, str] | None = None
) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        subprocess.run([program, *arguments], check=True, cwd=ROOT, stdout=subprocess.DEVNULL, env=env)
        return time.perf_counter() - start

    return run


def paired(
    name: str, goal: float, runs: int, first: Callable[[], float], second: Callable[[], float]
) -> dict[str, object]:
    first(), second()
    pairs = [(first(), second()) for _ in range(runs)]
    ratios = [a / b for a, b in pairs]
    return {
        "name": name,
        "ratio": rounded(statistics.median(ratios)),
        "range": [rounded(min(ratios)), rounded(max(ratios))],
        "goal": f"<= {goal:g}",
        "met": statistics.median(ratios) <= goal,
        "seconds": {
            "first": rounded(statistics.median(a for a, _ in pairs)),
            "second": rounded(statistics.median(b for _, b in pairs)),
        },
    }


def free_port() -> int:
    """Return a port of this machine that nothing has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(*packages: str) -> dict[str, object]:
    """Return the machine that a result is of, its load, and the versions of these packages."""
    return {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "load": [rounded(load) for load in os.getloadavg()],
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def rounded(value: float) -> float:
    """To three significant digits."""
    return float(f"{value:.3g}")


def report(results: list[dict[str, object]], **more: object) -> None:
    """One JSON document: each measurement with the median ratio, the range, and the goal it is held against."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    print(json.dumps({"date": date, "python": sys.version.split()[0], **more, "results": results}, indent=2))
