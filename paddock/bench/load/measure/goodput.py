"""Goodput: the requests that met their limits, a second."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.bench.errors import BenchInputError
from paddock.bench.load.answer import Answer
from paddock.bench.load.measure.latency import tpot, ttft
from paddock.catalog.latency_limits import LatencyLimit, latency_limits
from paddock.errors import did_you_mean

JUDGED_PART = 0.99
"""Part of the requests that MLPerf asks to be within the limits."""
OFFICIAL_SECONDS = 600.0
"""Least duration of an official MLPerf run."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests within the limits, of all that were measured; one that failed is not within them."""

    limit: LatencyLimit
    good: int
    requests: int
    per_second: float

    @property
    def attained(self) -> float:
        """Part of the requests that met both limits."""
        return self.good / self.requests if self.requests else 0.0


def parse_limit(text: str) -> LatencyLimit:
    """Read the name of a preset, or limits in milliseconds: ``ttft=500,tpot=30``. Raises BenchInputError."""
    presets = latency_limits()
    if text in presets:
        return presets[text]
    if "=" not in text:
        hint = did_you_mean(text, presets, f"one of {', '.join(presets)}")
        raise BenchInputError(f"--slo: no limits are called {text!r}\n    expected: {hint}, or ttft=500,tpot=30")
    milliseconds = dict(re.findall(r"(?:^|,)\s*(ttft|tpot)=(\d+(?:\.\d+)?)(?=\s*(?:,|$))", text))
    if len(milliseconds) != len(text.split(",")) or not all(float(value) > 0 for value in milliseconds.values()):
        raise BenchInputError(f"--slo: {text!r} makes no sense\n    expected: milliseconds, such as ttft=500,tpot=30")
    return LatencyLimit(
        text, float(milliseconds.get("ttft", math.inf)), float(milliseconds.get("tpot", math.inf)), "the command line"
    )


def goodput(answers: Sequence[Answer], limit: LatencyLimit, seconds: float) -> Goodput:
    """Return |{i: TTFT ≤ limit and TPOT ≤ limit}| / seconds over all measured requests."""
    good = sum(1 for answer in answers if meets(answer, limit))
    return Goodput(limit, good, len(answers), good / seconds if seconds > 0 else 0.0)


def meets(answer: Answer, limit: LatencyLimit) -> bool:
    """Tell whether a request met both limits. A single token has no TPOT, so it is within any."""
    if not answer.succeeded or ttft(answer) * 1000 > limit.ttft_ms:
        return False
    per_token = tpot(answer)
    if per_token is None:
        return answer.tokens is not None or math.isinf(limit.tpot_ms)
    return per_token * 1000 <= limit.tpot_ms
