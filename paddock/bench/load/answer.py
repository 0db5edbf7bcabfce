"""Answers: the tokens of a stream and when each was visible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paddock.bench.load.client.messages import Exchange
from paddock.openai.errors import ExchangeError, Failure, short
from paddock.openai.stream import CountedBy, Part, StreamReader, Usage

_MOST_TIMES, _MOST_MORE = 64, 4096
"""Tokens of an answer that a server may count, for each that was requested and beyond: more is a mistake of its own."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of an answer that arrived at once; `tokens` is None until they are counted."""

    time: float
    tokens: int | None
    counted_by: CountedBy = "nothing"


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of one request. Times are seconds since the load began."""

    exchange: Exchange
    chunks: tuple[Chunk, ...] = ()
    usage: Usage | None = None
    counted_by: CountedBy = "nothing"
    failure: Failure | None = None

    @property
    def succeeded(self) -> bool:
        return self.failure is None

    @property
    def tokens(self) -> int | None:
        """Output tokens; None where the server says nothing from which they could be counted."""
        return None if self.counted_by == "nothing" else sum(chunk.tokens or 0 for chunk in self.chunks)

    @property
    def first(self) -> float:
        return self.chunks[0].time

    @property
    def last(self) -> float:
        return self.chunks[-1].time

    def gaps(self) -> list[float]:
        """Return the gaps between tokens in seconds: d tokens in a chunk Δt after the last one are d gaps of Δt/d.

        Tokens of the first chunk were visible together, so there is no gap between them. A chunk of no token leaves its
        time to the next.
        """
        result: list[float] = []
        before = self.first
        for chunk in self.chunks[1:]:
            if chunk.tokens:
                result += [(chunk.time - before) / chunk.tokens] * chunk.tokens
                before = chunk.time
        return result


def read_answer(exchange: Exchange) -> Answer:
    """Read the answer in an exchange. Chunks are never taken for tokens: one may hold many, or none.

    Tokens are counted by what each chunk says (token ids, logprobs or a running usage); where chunks say nothing, the
    usage at the end is spread over those with text, reasoning or calls of tools.
    """
    if exchange.failure and exchange.failure.kind == "HTTP status":
        return Answer(exchange, failure=Failure("HTTP status", f"{exchange.status}: {_beginning(exchange)}"))
    reader, chunks = StreamReader(), list[Chunk]()
    failure = exchange.failure
    try:
        for part in _parts(reader, exchange):
            if part.tokens is not None or part.spoken:
                chunks.append(Chunk(part.time, part.tokens, part.counted_by))
    except ExchangeError as error:
        # What the server says of a failure tells more than that its connection broke afterwards.
        failure = error.failure if failure is None or error.failure.kind == "server error" else failure
    if failure is None and not chunks:
        failure = Failure("malformed", _unseen(reader.usage) or f"an answer without a token: {_beginning(exchange)}")
    counted, counted_by = _counted(chunks, reader.usage, _MOST_TIMES * exchange.new + _MOST_MORE)
    return Answer(exchange, counted, reader.usage, counted_by, failure)


def _parts(reader: StreamReader, exchange: Exchange) -> Iterator[Part]:
    time = exchange.sent
    for time, piece in exchange.pieces:
        yield from reader.feed(time, piece)
    if exchange.failure is None:
        yield from reader.end(time)


def _counted(chunks: Sequence[Chunk], usage: Usage | None, most: int) -> tuple[tuple[Chunk, ...], CountedBy]:
    """Return the chunks with their tokens, and by what they are counted; by nothing for more than `most` tokens."""
    kinds = {chunk.counted_by for chunk in chunks}
    total = sum(chunk.tokens or 0 for chunk in chunks)
    if max(total, usage.completion if usage else 0) > most:
        return tuple(Chunk(chunk.time, None) for chunk in chunks), "nothing"
    if len(kinds) == 1 and "nothing" not in kinds and (usage is None or usage.completion == total):
        return tuple(chunks), chunks[0].counted_by
    if usage is None or not chunks:
        return tuple(chunks), "nothing"
    count = len(chunks)
    # Rounded up, so that the first chunk, which is what the user sees first, is never without a token.
    shares = pairwise(-(-usage.completion * number // count) for number in range(count + 1))
    by: CountedBy = "usage, spread over the chunks"
    return tuple(Chunk(c.time, high - low, by) for c, (low, high) in zip(chunks, shares, strict=True)), by


def _unseen(usage: Usage | None) -> str:
    count = usage.completion if usage else 0
    return f"an answer without a token to see, and a usage of {count}: its reasoning is not shown" if count else ""


def _beginning(exchange: Exchange) -> str:
    body = b"".join(piece for _, piece in exchange.pieces)
    return short(body.decode(errors="replace")) if body else "nothing"
