"""Latencies of answers, named as vLLM names them, and their summaries.

With the scheduled arrival a, the sending s, the first token f, the last token e and n output tokens of one request:

- TTFT = f - a (a = s in a closed loop), so that a server that stalls is charged with those who had to wait to be sent;
- queue wait = s - a, a part of TTFT;
- TPOT = (e - f)/(n - 1) for n ≥ 2: one value a request;
- ITL = the gaps between tokens, of all requests together: one value a token;
- E2E = e - a.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paddock.bench.errors import BenchInputError
from paddock.bench.load.answer import Answer
from paddock.bench.measurement.statistics import TAIL_SAMPLES, Summary, summarise
from paddock.catalog.latency_limits import LatencyLimit, latency_limits
from paddock.errors import did_you_mean


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of the successful requests, in seconds; an empty list where nothing could be measured."""

    ttft: list[float]
    queue_wait: list[float]
    tpot: list[float]
    itl: list[float]
    e2e: list[float]

    @classmethod
    def of(cls, answers: Iterable[Answer]) -> Latencies:
        result = cls([], [], [], [], [])
        for answer in answers:
            exchange = answer.exchange
            result.ttft.append(ttft(answer))
            result.queue_wait.append(exchange.sent - exchange.scheduled)
            result.e2e.append(answer.last - exchange.scheduled)
            per_token = tpot(answer)
            if per_token is not None:
                result.tpot.append(per_token)
                result.itl.extend(answer.gaps())
        return result


def ttft(answer: Answer) -> float:
    """Return the seconds from the scheduled arrival to the first token."""
    return answer.first - answer.exchange.scheduled


def tpot(answer: Answer) -> float | None:
    """Return the seconds for each token after the first; None without a second one, or where tokens are not known."""
    tokens = answer.tokens
    return None if tokens is None or tokens < 2 else (answer.last - answer.first) / (tokens - 1)


def summary_ms(seconds: Sequence[float]) -> Summary | None:
    """Return the summary in milliseconds; None without samples."""
    return summarise([value * 1000 for value in seconds], "ms") if seconds else None


def needed_samples(percent: float) -> int:
    """Return the samples that a percentile takes."""
    return math.ceil(TAIL_SAMPLES / (1 - percent / 100) - 1e-9)


def conservative_p99(values: Sequence[float]) -> float:
    """Return the value that at most one in a hundred exceeds: below 100 values the largest. Raises ValueError for none.

    It judges a run, and reports nothing of a server: too few values must not make a late client look in time.
    """
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


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
        raise BenchInputError(
            f"--slo: {text!r} is not a list of limits\n    expected: milliseconds, such as ttft=500,tpot=30"
        )
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
