"""The measured loop: prefill and decode of one batch and length, timed apart."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from paddock.bench.engines.door import Engine, Timer

STEADY = 0.02
"""Largest difference of the medians of the two halves of the steps for a run to count as steady."""
_DROPPED = 0.1
"""Part of each run's steps that is not counted: the first ones."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds of one batch and length: `prefill` a run, `steps` of all runs without the first ones, `runs` by run."""

    prefill: tuple[float, ...]
    runs: tuple[tuple[float, ...], ...]
    wall: tuple[float, ...]
    """Seconds of each run's decoding, by one clock around all of its steps."""
    paused: tuple[float, ...] = ()
    """Seconds that a resource mode kept each run waiting, before its prefill."""
    engine: tuple[float, ...] = ()
    """Seconds of each run's decoding that were spent inside the engine's calls, and waiting for its device."""
    calls: tuple[float, ...] = ()
    """Seconds of the shortest call of each run: what launching a step takes, where nothing holds the launch up."""
    reported: tuple[float, ...] = ()
    """Seconds of each run's decoding by the engine's own clock, where it has one."""
    inside: float = 0.0
    """Seconds of all decoding that the harness took inside the engine's calls, such as to read answers."""
    together: int = 0
    """Tokens that the engine gave together with the one after them."""

    @property
    def steps(self) -> list[float]:
        return [step for run in self.runs for step in run[_dropped(len(run)) :]]

    @property
    def drift(self) -> float:
        """Relative difference of the second half's median step to the first half's, by position within the runs."""
        early: list[float] = []
        late: list[float] = []
        for run in self.runs:
            counted = run[_dropped(len(run)) :]
            early += counted[: len(counted) // 2]
            late += counted[len(counted) // 2 :]
        if not early or not late:
            return 0.0
        return statistics.median(late) / statistics.median(early) - 1

    @property
    def overhead(self) -> float:
        """Part of the decoding time that was not the engine's: the harness's own."""
        total = sum(self.wall)
        return max(0.0, 1 - (sum(self.engine) - self.inside) / total) if total and self.engine else 0.0

    @property
    def clocks(self) -> float | None:
        """Seconds of decoding by our clock over those by the engine's own; None where it has none."""
        if len(self.reported) != len(self.runs) or not sum(self.reported):
            return None
        return sum(sum(run) for run in self.runs) / sum(self.reported)

    @property
    def launching(self) -> float:
        """Part of a step that launching it takes. Near 1 a GPU waits for the CPU."""
        return statistics.median(self.calls) / statistics.median(self.steps) if self.calls else 0.0


def measure(
    engine: Engine,
    prompts: Callable[[int], Any],
    timer: Timer,
    *,
    new: int,
    runs: int,
    warm_up: int,
    turn: Callable[[], AbstractContextManager[float]] = lambda: nullcontext(0.0),
) -> Samples:
    """Return the samples of `runs` requests of `new` tokens, after `warm_up` that are not counted.

    The first new token belongs to prefill, so a run has `new - 1` steps. `prompts` gives the prompts of a run.
    Each run is inside a `turn`, which may wait first and gives the seconds of that.
    """
    rows = []
    for run in range(-warm_up, runs):
        ids = prompts(run)
        with turn() as paused:
            timer.start(1)
            token = engine.prefill(ids)
            timer.wait()
            timer.mark()
            (first,) = timer.finish()
            steps = _decode(engine, token, timer, new - 1)
            report = engine.finish()
        if run >= 0:
            rows.append((first, *steps, paused, report))
    prefill, decoded, wall, inside, calls, pauses, reports = zip(*rows, strict=True)
    reported = tuple(report["decode_s"] for report in reports if "decode_s" in report)
    harness, together = (sum(report.get(name, 0.0) for report in reports) for name in ("harness_s", "together"))
    return Samples(prefill, decoded, wall, pauses, inside, calls, reported, harness, int(together))


def _decode(engine: Engine, token: Any, timer: Timer, steps: int) -> tuple[tuple[float, ...], float, float, float]:
    """Return the seconds of each step, of all by one clock, of those inside the engine, and of the shortest call."""
    timer.start(steps)
    begin = time.perf_counter()
    inside, shortest = 0.0, math.inf
    for _ in range(steps):
        called = time.perf_counter()
        token = engine.decode(token)
        timer.wait()
        call = time.perf_counter() - called
        inside, shortest = inside + call, min(shortest, call)
        timer.mark()
    launched = time.perf_counter()
    seconds = timer.finish()
    end = time.perf_counter()
    return tuple(seconds), end - begin, inside + end - launched, shortest


def _dropped(steps: int) -> int:
    return int(steps * _DROPPED)
