"""Answers: the tokens of a stream and when each was visible."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from paddock.bench.load.client.messages import Exchange, Failure
from paddock.bench.load.stream.sse import events

CountedBy = Literal["token ids", "logprobs", "running usage", "usage, spread over the chunks", "nothing"]
_TEXT = 200
"""Characters of a server's own words in a message."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of an answer that arrived at once; `tokens` is None until they are counted."""

    time: float
    tokens: int | None
    counted_by: CountedBy = "nothing"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them."""

    prompt: int | None
    completion: int


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
    usage at the end is spread over those with text.
    """
    if exchange.failure and exchange.failure.kind == "HTTP status":
        return Answer(exchange, failure=Failure("HTTP status", _refusal(exchange)))
    chunks: list[Chunk] = []
    usage, counted_so_far, whole = None, 0, False
    failure = exchange.failure
    try:
        for event in events(exchange.pieces):
            if event.data.strip() == "[DONE]":
                whole = True
                continue
            document = _document(event.data)
            if "error" in document:
                raise _Malformed(f"the server reports an error: {_short(document['error'])}")
            running = _usage(document)
            usage = running or usage
            for choice in document.get("choices") or []:
                whole = whole or choice.get("finish_reason") is not None
                chunk = _chunk(event.time, choice, running.completion - counted_so_far if running else None)
                if chunk:
                    chunks.append(chunk)
                    counted_so_far += chunk.tokens or 0
    except (_Malformed, UnicodeDecodeError, AttributeError, TypeError) as error:
        message = str(error) if isinstance(error, _Malformed) else "a chunk has not the form of a streamed answer"
        failure = failure or Failure("malformed", message)
    if failure is None and not chunks:
        failure = Failure("malformed", f"an answer without a token: {_beginning(exchange)}")
    if failure is None and not whole:
        failure = Failure("closed early", "the stream ended without a finish_reason or [DONE]")
    counted, counted_by = _counted(chunks, usage)
    return Answer(exchange, counted, usage, counted_by, failure)


class _Malformed(Exception):
    """Chunk that is no part of a streamed answer."""


def _document(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        raise _Malformed(f"a chunk is not JSON: {_short(text)}") from None
    if not isinstance(document, dict):
        raise _Malformed(f"a chunk is no JSON object: {_short(text)}")
    return document


def _usage(document: Mapping[str, Any]) -> Usage | None:
    usage = document.get("usage")
    if not usage or not isinstance(usage.get("completion_tokens"), int):
        return None
    prompt = usage.get("prompt_tokens")
    return Usage(prompt if isinstance(prompt, int) else None, usage["completion_tokens"])


def _chunk(time: float, choice: Mapping[str, Any], more: int | None) -> Chunk | None:
    """Return the tokens or the text of a choice, or None; `more` is the growth of the usage in the same chunk."""
    ids = choice.get("token_ids")
    if ids:
        return Chunk(time, len(ids), "token ids")
    logprobs = choice.get("logprobs") or {}
    tokens = logprobs.get("tokens") or logprobs.get("content")
    if tokens:
        return Chunk(time, len(tokens), "logprobs")
    if not _has_text(choice):
        return None
    return Chunk(time, None) if more is None else Chunk(time, more, "running usage")


def _has_text(choice: Mapping[str, Any]) -> bool:
    """Tell whether a choice holds text: of a completion, or of a message, its reasoning or its tool calls."""
    delta = choice.get("delta") or {}
    names = ("content", "reasoning_content", "reasoning", "tool_calls")
    return bool(choice.get("text")) or any(delta.get(name) for name in names)


def _counted(chunks: Sequence[Chunk], usage: Usage | None) -> tuple[tuple[Chunk, ...], CountedBy]:
    """Return the chunks with their tokens, and by what they are counted."""
    kinds = {chunk.counted_by for chunk in chunks}
    total = sum(chunk.tokens or 0 for chunk in chunks)
    if len(kinds) == 1 and "nothing" not in kinds and (usage is None or usage.completion == total):
        return tuple(chunks), chunks[0].counted_by
    if usage is None or not chunks:
        return tuple(chunks), "nothing"
    count = len(chunks)
    # Rounded up, so that the first chunk, which is what the user sees first, is never without a token.
    shares = pairwise(-(-usage.completion * number // count) for number in range(count + 1))
    by: CountedBy = "usage, spread over the chunks"
    return tuple(Chunk(c.time, high - low, by) for c, (low, high) in zip(chunks, shares, strict=True)), by


def _refusal(exchange: Exchange) -> str:
    return f"{exchange.status}: {_beginning(exchange)}"


def _beginning(exchange: Exchange) -> str:
    body = b"".join(piece for _, piece in exchange.pieces)
    return _short(body.decode(errors="replace")) if body else "nothing"


def _short(value: object) -> str:
    text = " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}..."
