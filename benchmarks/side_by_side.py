"""Ratios of runs side by side on one machine, so that they mean something on another.

Pairs run in turn (A B A B), so that a machine that slows down slows both.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def process(*arguments: str) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began

    return run


def paired(
    name: str, goal: float, runs: int, first: Callable[[], float], second: Callable[[], float]
) -> dict[str, object]:
    first(), second()
    pairs = [(first(), second()) for _ in range(runs)]
    ratios = [a / b for a, b in pairs]
    return {
        "name": name,
        "ratio": round(statistics.median(ratios), 2),
        "range": [round(min(ratios), 2), round(max(ratios), 2)],
        "goal": f"<= {goal:g}",
        "met": statistics.median(ratios) <= goal,
        "seconds": {
            "first": round(statistics.median(a for a, _ in pairs), 3),
            "second": round(statistics.median(b for _, b in pairs), 3),
        },
    }


def report(results: list[dict[str, object]]) -> None:
    """One JSON document: each measurement with the median ratio, the range, and the goal it is held against."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    print(json.dumps({"date": date, "python": sys.version.split()[0], "results": results}, indent=2))
