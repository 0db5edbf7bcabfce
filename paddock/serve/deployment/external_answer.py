"""Answer of an external engine: its events as pieces, until the body of its response has ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from paddock.bench.load.client.http import HttpFailure, Response
from paddock.bench.load.stream.sse import EventReader
from paddock.serve.admission.refusal import RequestError
from paddock.serve.deployment.replica import Piece

_REST_S = 0.5
"""Seconds in which a response ends after its last event; then its connection is used again."""


@dataclass(slots=True)
class _Answer:
    """Part of an answer that has come. Its last piece waits for the usage, which comes after it."""

    prompt_tokens: int = 0
    new_tokens: int = 0
    finish: str = ""
    last: str = ""
    done: bool = False

    def take(self, data: str) -> Piece | None:
        """Take an event, and return the piece that it is. Raises RequestError, and ValueError and its like."""
        if data.strip() == "[DONE]":
            self.done = True
            return None
        document = json.loads(data)
        if document.get("error"):
            raise RequestError("the endpoint ended its answer with an error", 502, "engine_error")
        text, calls, finish = _content(document)
        self.new_tokens += bool(text or calls)
        if usage := document.get("usage"):
            self.prompt_tokens, self.new_tokens = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
        if finish or self.finish:
            self.finish, self.last = self.finish or finish, self.last + text
            text = ""
        return Piece(text, self.prompt_tokens, self.new_tokens, tool_calls=calls) if text or calls else None

    def end(self) -> Piece:
        return Piece(self.last, self.prompt_tokens, self.new_tokens, self.finish)


async def read_answer(response: Response) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of a streamed answer; the last one when its usage has come too. Raises RequestError."""
    answer, reader = _Answer(), EventReader()
    async with aclosing(response.pieces) as pieces:  # type: ignore[type-var]  # it is a generator
        try:
            async for part in pieces:
                for event in reader.feed(0.0, part):
                    if piece := answer.take(event.data):
                        yield piece
                    if answer.done:
                        break
                if answer.done:
                    await _rest(pieces)
                    break
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise RequestError(
                f"the endpoint sends what is no answer: {type(error).__name__}", 502, "engine_error"
            ) from None
        except HttpFailure:
            if not answer.finish:
                raise
        if answer.finish:  # all of the answer has come, also where the endpoint leaves out [DONE]
            yield answer.end()


async def _rest(pieces: AsyncIterator[bytes]) -> None:
    """Read to the end of the body, so that its connection can be kept."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_REST_S):
            async for _ in pieces:
                pass


def _content(document: Mapping[str, Any]) -> tuple[str, tuple[Mapping[str, Any], ...], str]:
    """Return the text of a chunk, its calls of tools, and why the answer ends with it."""
    choices = document["choices"]
    if not choices:
        return "", (), ""
    choice = choices[0]
    delta = choice.get("delta") or {}
    text = choice.get("text") or delta.get("content") or ""
    finish = choice.get("finish_reason") or ""
    if not isinstance(text, str) or not isinstance(finish, str):
        raise TypeError
    return text, tuple(map(_call, delta.get("tool_calls") or ())), finish


def _call(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of a call of a tool, without what it leaves out. Raises TypeError, LookupError."""
    function = part.get("function") or {}
    texts = {name: part[name] for name in ("id", "type") if part.get(name) is not None}
    words = {name: function[name] for name in ("name", "arguments") if function.get(name) is not None}
    if not all(isinstance(text, str) for text in (*texts.values(), *words.values())):
        raise TypeError
    return {"index": int(part["index"]), **texts, "function": words}
