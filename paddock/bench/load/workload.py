"""Requests of a load: when they arrive, how long their prompts and answers are, and the prompts' text."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
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


MOST_TOKENS = 1_000_000
# Frequent words, each of which is one token with the space before it in the vocabularies of GPT, Llama and Qwen.
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand"
    " part place case week company system program question work government number night point home water room mother"
    " area money story fact month lot right study book eye job word business issue side kind head house service friend"
)
_WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True)
class Lengths:
    """Range of lengths in tokens, both ends included; each length is equally likely."""

    low: int
    high: int

    @classmethod
    def parse(cls, flag: str, text: str) -> Lengths:
        """Read "512" or "128-1024". Raises BenchInputError."""
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= low <= high <= MOST_TOKENS:
            raise BenchInputError(
                f"--{flag}: {text!r} is not a number of tokens\n"
                f"    expected: a number such as 512, or a range such as 128-1024, up to {MOST_TOKENS}"
            )
        return cls(low, high)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `prompt` words, about a token each, and `new` tokens to generate."""

    index: int
    prompt: int
    new: int

    def text(self, seed: int) -> str:
        """Return the prompt. It differs from the first word on, so that no server answers from its prefix cache."""
        source = random.Random(f"{seed}:{self.index}")  # noqa: S311 (a prompt, no secret)
        return " ".join(source.choices(_WORDS, k=self.prompt))


def requests(prompt: Lengths, new: Lengths, seed: int) -> Iterator[Request]:
    """Yield requests without end; the same seed gives the same ones."""
    source = random.Random(f"{seed}:lengths")  # noqa: S311 (lengths, no secret)
    for index in count():
        yield Request(index, source.randint(prompt.low, prompt.high), source.randint(new.low, new.high))


def trace_requests(entries: tuple[TraceEntry, ...]) -> Iterator[Request]:
    """Yield the requests of a trace."""
    for index, entry in enumerate(entries):
        yield Request(index, entry.prompt, entry.new)
