"""OpenAI's objects of one answer, whole or as events of a stream."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation


class Answer:
    """OpenAI's objects of one answer."""

    def __init__(self, generation: Generation, model: str) -> None:
        self._generation, self._model = generation, model
        self._id = f"{'chatcmpl' if generation.chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    async def whole(self, pieces: AsyncIterator[Any]) -> dict[str, Any]:
        """Return the answer once it is complete. Raises RequestError."""
        texts, calls, last = [], ToolCalls(), None
        async for piece in pieces:
            texts.append(piece.text)
            calls.add(piece.tool_calls)
            last = piece
        assert last is not None  # noqa: S101 - a generation has at least one piece
        text = "".join(texts)
        content: dict[str, Any] = {"text": text}
        if self._generation.chat:
            tool_calls = calls.whole()
            more = {"tool_calls": tool_calls} if tool_calls else {}
            content = {"message": {"role": "assistant", "content": text if text or not tool_calls else None, **more}}
        choice = {"index": 0, **content, "finish_reason": last.finish or None, "logprobs": None}
        return {**self._head(chunk=False), "choices": [choice], "usage": _usage(last)}

    async def events(self, pieces: AsyncIterator[Any]) -> AsyncIterator[str]:
        """Yield the events of a stream, which ends with `[DONE]` or with an error."""
        last = None
        try:
            if self._generation.chat:
                yield self._event({"delta": {"role": "assistant", "content": ""}}, None)
            async for piece in pieces:
                last = piece
                content: dict[str, Any] = {"text": piece.text}
                if self._generation.chat:
                    calls = {"tool_calls": list(piece.tool_calls)} if piece.tool_calls else {}
                    content = {"delta": {"content": piece.text, **calls}}
                yield self._event(content, piece.finish or None)
        except RequestError as error:
            yield f"data: {json.dumps(error.document())}\n\n"
            return
        if self._generation.usage and last is not None:
            yield f"data: {json.dumps({**self._head(chunk=True), 'choices': [], 'usage': _usage(last)})}\n\n"
        yield "data: [DONE]\n\n"

    def _event(self, content: dict[str, Any], finish: str | None) -> str:
        choice = {"index": 0, **content, "finish_reason": finish, "logprobs": None}
        return f"data: {json.dumps({**self._head(chunk=True), 'choices': [choice]})}\n\n"

    def _head(self, *, chunk: bool) -> dict[str, Any]:
        kind = "text_completion" if not self._generation.chat else f"chat.completion{'.chunk' if chunk else ''}"
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


class ToolCalls:
    """Calls of tools, put together from the parts of a stream: each part names its call by an index."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, parts: Iterable[Mapping[str, Any]]) -> None:
        """Add parts; names and arguments come in pieces."""
        for part in parts:
            call = self._calls.setdefault(
                part["index"], {"type": "function", "function": {"name": "", "arguments": ""}}
            )
            call |= {name: part[name] for name in ("id", "type") if name in part}
            for name, text in part["function"].items():
                call["function"][name] += text

    def whole(self) -> list[dict[str, Any]]:
        return [self._calls[index] for index in sorted(self._calls)]


def _usage(piece: Any) -> dict[str, int]:
    return {
        "prompt_tokens": piece.prompt_tokens,
        "completion_tokens": piece.new_tokens,
        "total_tokens": piece.prompt_tokens + piece.new_tokens,
    }
