"""OpenAI's objects of one answer, whole or as events of a stream."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
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
        text, last = "", None
        async for piece in pieces:
            text, last = text + piece.text, piece
        assert last is not None  # noqa: S101 - a generation has at least one piece
        content = {"message": {"role": "assistant", "content": text}} if self._generation.chat else {"text": text}
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
                content = {"delta": {"content": piece.text}} if self._generation.chat else {"text": piece.text}
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


def _usage(piece: Any) -> dict[str, int]:
    return {
        "prompt_tokens": piece.prompt_tokens,
        "completion_tokens": piece.new_tokens,
        "total_tokens": piece.prompt_tokens + piece.new_tokens,
    }
