"""OpenAI-compatible HTTP: completions and chat with streaming, models, health and metrics."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from paddock.serve.admission.limits import Limits, Queues, Users
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation, chat, completion
from paddock.serve.gateway.answers import Answer
from paddock.serve.gateway.metrics import CONTENT_TYPE, Metrics
from paddock.serve.gateway.record import Application, Record, Recorded, record_of

_FRESH_S = 0.5
_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_ANYBODY = ""


class Gateway:
    """HTTP before the replicas. `keys` are SHA-256 sums of API keys; none means that everybody may ask.

    `list_models` returns the scheduler's instances, `stream` starts a generation on one.
    """

    def __init__(
        self,
        list_models: Callable[[], Any],
        stream: Callable[[str, Generation], AsyncGenerator[Any, None]],
        keys: frozenset[str] = frozenset(),
        limits: Limits | None = None,
    ) -> None:
        self._list_models, self._stream, self._keys = list_models, stream, keys
        self._limits = limits or Limits()
        self._queues, self._users = Queues(self._limits.queue), Users(self._limits)
        self._metrics = Metrics(lambda: self._queues.in_flight)
        self._listed: tuple[float, list[dict[str, Any]]] = (0.0, [])

    def app(self) -> Application:
        """Return the application."""
        routes = [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/v1/models", self._answered(self.models)),
            Route(_COMPLETIONS, self._answered(self.completions), methods=["POST"]),
            Route(_CHAT, self._answered(self.chat), methods=["POST"]),
        ]
        return Recorded(Starlette(routes=routes), self._metrics, frozenset([_COMPLETIONS, _CHAT]))

    async def health(self, request: Request) -> Response:
        models = await self._models(fresh=True)
        serving = sum(model["state"] == "serving" for model in models)
        return JSONResponse({"status": "ok", "models": len(models), "serving": serving})

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(await self._models()), media_type=CONTENT_TYPE)

    async def models(self, request: Request) -> Response:
        self._user(request.headers)
        rows = [
            {"id": model["id"], "object": "model", "created": int(model["since"]), "owned_by": "paddock"}
            for model in await self._models(fresh=True)
            if model["state"] == "serving"
        ]
        return JSONResponse({"object": "list", "data": rows})

    async def completions(self, request: Request) -> Response:
        return await self._generate(request, completion)

    async def chat(self, request: Request) -> Response:
        return await self._generate(request, chat)

    def _answered(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Return the handler with every error as OpenAI's, and in the record of the request."""

        async def handle(request: Request) -> Response:
            try:
                response: Response = await handler(request)
                return response
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it: the client went while it sent the body
            except Exception as error:
                stated = _stated(error)
                record_of(request.scope).failed(stated.status, stated.code)
                retry = {"Retry-After": str(stated.retry_s)} if stated.status in (429, 503) else {}
                return JSONResponse(stated.document(), stated.status, headers=retry)

        return handle

    def _user(self, headers: Mapping[str, str], claimed: str = _ANYBODY) -> str:
        """Return who asks: the sum of the API key, or without keys whom the client names. Raises RequestError."""
        if not self._keys:
            return claimed
        scheme, _, key = headers.get("authorization", "").partition(" ")
        sum_ = hashlib.sha256(key.strip().encode()).hexdigest()
        # Every sum is compared, so that time says nothing about the place of the right one.
        right = [hmac.compare_digest(sum_, expected) for expected in self._keys]
        if scheme.lower() != "bearer" or not any(right):
            raise RequestError("the API key is missing or wrong", 401, "invalid_api_key")
        return sum_

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

    async def _generate(self, request: Request, parse: Callable[[bytes], Generation]) -> Response:
        record = record_of(request.scope)
        self._user(request.headers)  # before a byte of the body is read
        generation = parse(await self._body(request))
        user = self._user(request.headers, generation.user)
        record.held.enter_context(self._users.request(user))
        instance = await self._instance(generation.model)
        record.model = instance["id"]
        record.held.enter_context(self._queues.place(instance["id"], instance.get("concurrency") or 1))
        pieces = self._stream(instance["id"], generation)
        record.held.push_async_callback(pieces.aclose)
        noted = self._noted(pieces, record)
        # The first piece decides the status: a full queue or a long prompt is no stream that breaks off.
        first = await anext(noted)
        answer, whole = Answer(generation, instance["id"]), _after(first, noted)
        if generation.stream:
            return StreamingResponse(answer.events(whole), media_type="text/event-stream")
        return JSONResponse(await answer.whole(whole))

    async def _noted(self, pieces: AsyncIterator[Any], record: Record) -> AsyncIterator[Any]:
        """Yield all pieces, and note what comes of the request. Raises RequestError, also for an answer cut off."""
        piece = None
        try:
            while piece is None or not piece.finish:
                async with asyncio.timeout(self._limits.piece_seconds):
                    piece = await anext(pieces, None)
                if piece is None:
                    raise RequestError("the model ended without the end of its answer", 502, "engine_error")
                record.piece(piece.prompt_tokens, piece.new_tokens)
                if piece.finish:
                    record.outcome = "answered"
                yield piece
        except Exception as error:
            stated = _stated(error)
            record.failed(stated.status, stated.code)
            raise stated from None

    async def _body(self, request: Request) -> bytes:
        """Return the body, and read no more of it than is allowed, nor longer. Raises RequestError."""
        body, most = b"", self._limits.body_bytes
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most:
                        raise RequestError(f"the body is larger than {most} bytes", 413)
        except TimeoutError:
            raise RequestError("the body did not come in time", 408, "request_timeout") from None
        return body


async def _after(first: Any, pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield first
    async for piece in pieces:
        yield piece


def _stated(error: Exception) -> RequestError:
    """Return an error as the client is told it. What nobody expected is named by its kind alone."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, TimeoutError):
        return RequestError("the model has not answered in time", 504, "timeout")
    print(f"gateway: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - goes to the actor's log
    return RequestError(f"the gateway failed: {type(error).__name__}", 500, "internal_error")
