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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paddock.bench.load.answer import Answer
from paddock.bench.measurement.statistics import TAIL_SAMPLES, Summary, summarise

PERCENTS = (50.0, 90.0, 95.0, 99.0)


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
    return summarise([value * 1000 for value in seconds], PERCENTS) if seconds else None


def needed_samples(percent: float) -> int:
    """Return the samples that a percentile takes."""
    return math.ceil(TAIL_SAMPLES / (1 - percent / 100) - 1e-9)


def conservative_p99(values: Sequence[float]) -> float:
    """Return the value that at most one in a hundred exceeds: below 100 values the largest. Raises ValueError for none.

    It judges a run, and reports nothing of a server: too few values must not make a late client look in time.
    """
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]
