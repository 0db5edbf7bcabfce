"""Requests of a load: how long their prompts and answers are, and the prompts' text."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from paddock.bench.errors import BenchInputError
from paddock.bench.load.arrivals import TraceEntry

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
