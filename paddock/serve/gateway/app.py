"""OpenAI-compatible HTTP: completions and chat with streaming, models, health and metrics."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from paddock.serve.admission.requests import MOST_BODY_BYTES, Generation, RequestError, chat, completion

_RETRY_S = 1
_FRESH_S = 0.5


class Gateway:
    """HTTP before the replicas. `keys` are SHA-256 sums of API keys; none means that everybody may ask.

    `list_models` returns the scheduler's instances, `stream` starts a generation on one.
    """

    def __init__(
        self,
        list_models: Callable[[], Any],
        stream: Callable[[str, Generation], AsyncIterator[Any]],
        keys: frozenset[str] = frozenset(),
    ) -> None:
        self._list_models, self._stream, self._keys = list_models, stream, keys
        self._listed: tuple[float, list[dict[str, Any]]] = (0.0, [])
        self.counts: Counter[str] = Counter()

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/metrics", self.metrics),
                Route("/v1/models", self._answered(self.models)),
                Route("/v1/completions", self._answered(self.completions), methods=["POST"]),
                Route("/v1/chat/completions", self._answered(self.chat), methods=["POST"]),
            ]
        )

    async def health(self, request: Request) -> Response:
        models = await self._models(fresh=True)
        serving = sum(model["state"] == "serving" for model in models)
        return JSONResponse({"status": "ok", "models": len(models), "serving": serving})

    async def metrics(self, request: Request) -> Response:
        lines = ["# TYPE inference_requests_total counter"]
        lines += [
            f'inference_requests_total{{outcome="{name}"}} {count}' for name, count in sorted(self.counts.items())
        ]
        return PlainTextResponse("\n".join(lines) + "\n")

    async def models(self, request: Request) -> Response:
        rows = [
            {"id": model["id"], "object": "model", "created": int(model["since"]), "owned_by": "paddock"}
            for model in await self._models(fresh=True)
            if model["state"] == "serving"
        ]
        return JSONResponse({"object": "list", "data": rows})

    async def completions(self, request: Request) -> Response:
        return await self._generate(completion(await _body(request)))

    async def chat(self, request: Request) -> Response:
        return await self._generate(chat(await _body(request)))

    def _answered(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Return the handler behind the check of the key, whose refusals are OpenAI's errors."""

        async def handle(request: Request) -> Response:
            try:
                self._authorise(request.headers)
                response: Response = await handler(request)
                return response
            except RequestError as error:
                self.counts["refused"] += 1
                retry = {"Retry-After": str(_RETRY_S)} if error.status in (429, 503) else {}
                return JSONResponse(error.document(), error.status, headers=retry)

        return handle

    def _authorise(self, headers: Mapping[str, str]) -> None:
        if not self._keys:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        sum_ = hashlib.sha256(key.strip().encode()).hexdigest()
        if scheme.lower() != "bearer" or not any(hmac.compare_digest(sum_, expected) for expected in self._keys):
            raise RequestError("the API key is missing or wrong", 401, "invalid_api_key")

    async def _models(self, *, fresh: bool = False) -> list[dict[str, Any]]:
        read_at, models = self._listed
        if fresh or time.monotonic() - read_at > _FRESH_S:
            models = list(await self._list_models())
            self._listed = (time.monotonic(), models)
        return models

    async def _instance(self, name: str) -> dict[str, Any]:
        """Return the serving instance of that id, or the first of that model. Raises RequestError."""
        matches: list[dict[str, Any]] = []
        for fresh in (False, True):
            models = await self._models(fresh=fresh)
            matches = [model for model in models if name in (model["id"], model["model"])]
            for model in matches:
                if model["state"] == "serving":
                    return model
        if matches:
            why = f": {matches[0]['reason']}" if matches[0]["reason"] else ""
            raise RequestError(f"{name} is {matches[0]['state']}{why}", 503, "model_not_ready")
        raise RequestError(f"there is no model {name!r}; /v1/models lists them", 404, "model_not_found", "model")

    async def _generate(self, generation: Generation) -> Response:
        instance = await self._instance(generation.model)
        pieces = self._stream(instance["id"], generation)
        answer = _Answer(generation, instance["id"])
        # The first piece decides the status: a full queue or a long prompt is no stream that breaks off.
        first = await anext(pieces, None)
        if first is None:
            raise RequestError("the model ended without an answer", 502, "engine_error")
        counted = self._counted(first, pieces)
        if generation.stream:
            return StreamingResponse(answer.events(counted), media_type="text/event-stream")
        return JSONResponse(await answer.whole(counted))

    async def _counted(self, first: Any, pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield all pieces, and count how the request ends. Raises RequestError."""
        outcome = "cancelled"
        try:
            yield first
            async for piece in pieces:
                yield piece
            outcome = "answered"
        except RequestError:
            outcome = "failed"
            raise
        finally:
            self.counts[outcome] += 1


class _Answer:
    """OpenAI's objects of one answer."""

    def __init__(self, generation: Generation, model: str) -> None:
        self._generation, self._model = generation, model
        self._id = f"{'chatcmpl' if generation.chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    async def whole(self, pieces: AsyncIterator[Any]) -> dict[str, Any]:
        text, last = "", None
        async for piece in pieces:
            text, last = text + piece.text, piece
        assert last is not None  # noqa: S101 - the first piece was there
        content = {"message": {"role": "assistant", "content": text}} if self._generation.chat else {"text": text}
        choice = {"index": 0, **content, "finish_reason": last.finish or None, "logprobs": None}
        return {**self._head(chunk=False), "choices": [choice], "usage": _usage(last)}

    async def events(self, pieces: AsyncIterator[Any]) -> AsyncIterator[str]:
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


async def _body(request: Request) -> bytes:
    """Return the body, and read no more of it than is allowed. Raises RequestError."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise RequestError(f"the body is larger than {MOST_BODY_BYTES} bytes", 413)
    return body
