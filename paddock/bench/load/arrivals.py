"""Arrivals of an open loop: all of them are known before the first request is sent."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from paddock.bench.errors import BenchInputError

POISSON, CONSTANT = 1.0, math.inf
"""Values of `burstiness`."""


def arrivals(count: int, rate: float, burstiness: float, seed: int) -> tuple[float, ...]:
    """Return `count` arrivals in seconds from the start, `rate` a second.

    Gaps are Gamma(k, 1/(k·rate)) for a burstiness k: their mean is 1/rate, their coefficient of variation 1/√k. So 1
    is a Poisson process, less comes in bursts, infinity is a constant pace. The gaps are scaled to add up to
    count/rate, as vLLM does (`vllm bench serve`), so that runs of different seeds offer the same load.
    """
    if math.isinf(burstiness):
        return tuple((number + 1) / rate for number in range(count))
    source = random.Random(seed)  # noqa: S311 (a schedule, no secret)
    gaps = [source.gammavariate(burstiness, 1 / (burstiness * rate)) for _ in range(count)]
    return scaled(tuple(accumulate(gaps)), rate)


def scaled(times: Sequence[float], rate: float) -> tuple[float, ...]:
    """Return the arrivals stretched so that the last of n is at n/rate."""
    factor = len(times) / rate / times[-1] if times and times[-1] > 0 else 1.0
    return tuple(time * factor for time in times)


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One request of a trace; `arrival` is in seconds from its start."""

    arrival: float
    prompt: int
    new: int


def read_trace(path: Path) -> tuple[TraceEntry, ...]:
    """Return the requests of a trace in the order of their arrival.

    Each line is a JSON object such as ``{"arrival": 0.25, "prompt": 512, "new": 128}``. Raises BenchInputError.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BenchInputError(f"--trace: cannot read {path}: {reason}\n    expected: a JSONL file") from None
    entries = [_entry(f"{path}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not entries:
        raise BenchInputError(f"--trace: {path} holds no request\n    expected: one JSON object a line")
    return tuple(sorted(entries, key=lambda entry: entry.arrival))


def _entry(place: str, line: str) -> TraceEntry:
    try:
        row = json.loads(line)
        entry = TraceEntry(float(row["arrival"]), int(row["prompt"]), int(row["new"]))
    except (ValueError, TypeError, KeyError):
        entry = None
    if entry is None or not 0 <= entry.arrival < math.inf or entry.prompt < 1 or entry.new < 1:
        raise BenchInputError(
            f"--trace: {place}: not a request\n"
            '    expected: seconds and tokens, such as {"arrival": 0.25, "prompt": 512, "new": 128}'
        )
    return entry
