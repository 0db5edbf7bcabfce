"""OpenAI-compatible HTTP: completions and chat with streaming, models, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from paddock.openai.answers import END, AnswerWriter, Piece, event
from paddock.openai.request import CHAT, COMPLETIONS
from paddock.serve.admission.limits import Limits, Queues, Users
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation, chat, completion
from paddock.serve.gateway.listing import Listing, Row, choose, concurrency
from paddock.serve.gateway.local import check_local
from paddock.serve.gateway.metrics import CONTENT_TYPE, Metrics
from paddock.serve.gateway.record import Application, Record, Recorded, record_of
from paddock.serve.gateway.replicas import ReadStatistics, no_statistics

_ANYBODY = ""
_RETRIED = (429, 503)

Stream = Callable[[Row, Generation], AsyncGenerator[Piece, None]]
"""Starts a generation on an instance, and yields the pieces of its answer. Raises RequestError."""


class Gateway:
    """HTTP before the replicas. `keys` are SHA-256 sums of API keys; without any, programs of this machine may ask.

    `list_models` returns the scheduler's instances, and `statistics` the counts of each replica of those that serve.
    """

    def __init__(
        self,
        list_models: Callable[[], Awaitable[Iterable[Row]]],
        stream: Stream,
        keys: frozenset[str] = frozenset(),
        limits: Limits | None = None,
        statistics: ReadStatistics = no_statistics,
    ) -> None:
        self._listing, self._stream, self._keys = Listing(list_models), stream, keys
        self._limits = limits or Limits()
        self._queues, self._users = Queues(self._limits.queue), Users(self._limits)
        self._statistics = statistics
        self._metrics = Metrics(lambda: self._queues.in_flight)

    def app(self) -> Application:
        """Return the application."""
        routes = [
            Route("/health", self._answered(self.health)),
            Route("/metrics", self._answered(self.metrics)),
            Route("/v1/models", self._answered(self.models)),
            Route("/v1/models/{id:path}", self._answered(self.model)),
            Route(COMPLETIONS, self._answered(self.completions), methods=["POST"]),
            Route(CHAT, self._answered(self.chat), methods=["POST"]),
        ]
        application = Starlette(routes=routes, exception_handlers={HTTPException: self._not_routed})
        return Recorded(application, self._metrics, frozenset([COMPLETIONS, CHAT]))

    async def health(self, request: Request) -> Response:
        """Say whether the scheduler answers; without it models still do, and none is placed anew."""
        models = await self._listing.newer()
        serving = sum(model["state"] == "serving" for model in models)
        problem = self._listing.problem
        return JSONResponse(
            {"status": problem or "ok", "models": len(models), "serving": serving}, 503 if problem else 200
        )

    async def metrics(self, request: Request) -> Response:
        with contextlib.suppress(RequestError):  # what else is counted can be read all the same
            await self._listing.rows()
        models = self._listing.known
        replicas = await self._statistics([model for model in models if model["state"] == "serving"])
        return Response(self._metrics.text(models, replicas, self._listing.problem), media_type=CONTENT_TYPE)

    async def models(self, request: Request) -> Response:
        self._user(request.headers)
        rows = [_model(model) for model in await self._listing.newer() if model["state"] == "serving"]
        return JSONResponse({"object": "list", "data": rows})

    async def model(self, request: Request) -> Response:
        self._user(request.headers)
        return JSONResponse(_model(await self._instance(request.path_params["id"])))

    async def completions(self, request: Request) -> Response:
        return await self._generate(request, completion)

    async def chat(self, request: Request) -> Response:
        return await self._generate(request, chat)

    def _answered(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Return the handler with every error as OpenAI's, and in the record of the request."""

        async def handle(request: Request) -> Response:
            try:
                if not self._keys:
                    check_local(request.method, request.headers)
                response: Response = await handler(request)
                return response
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it: the client went while it sent the body
            except Exception as error:
                return _refused(request, _stated(error))

        return handle

    async def _not_routed(self, request: Request, error: Exception) -> Response:
        """Answer a path or a method that there is not."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        code, what = ("method_not_allowed", request.method) if status == 405 else ("not_found", "such a path")
        stated = RequestError(f"{request.url.path[:200]}: there is no {what} here", status, code)
        return _refused(request, stated, getattr(error, "headers", None))

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

    async def _instance(self, name: str) -> Row:
        """Return the serving instance of that id or model. Raises RequestError."""
        chosen = None
        for read in (self._listing.rows, self._listing.newer):
            chosen = choose(await read(), name, self._queues.in_flight)
            if chosen and chosen["state"] == "serving":
                return chosen
        if chosen:
            why = f": {chosen['reason']}" if chosen["reason"] else ""
            raise RequestError(f"{name} is {chosen['state']}{why}", 503, "model_not_ready")
        raise RequestError(f"there is no model {name!r}; /v1/models lists them", 404, "model_not_found", "model")

    async def _generate(self, request: Request, parse: Callable[[bytes, int], Generation]) -> Response:
        record = record_of(request.scope)
        self._user(request.headers)  # before a byte of the body is read
        generation = parse(await self._body(request), self._limits.tokens)
        user = self._user(request.headers, generation.user)
        record.held.enter_context(self._users.request(user))
        instance = await self._instance(generation.model)
        record.model = instance["id"]
        record.held.enter_context(self._queues.place(instance["id"], concurrency(instance)))
        pieces = self._stream(instance, generation)
        record.held.push_async_callback(pieces.aclose)
        noted = self._noted(pieces, record)
        # The first piece decides the status: a full queue or a long prompt is no stream that breaks off.
        first = await anext(noted)
        answer, whole = AnswerWriter(instance["id"], chat=generation.chat), _after(first, noted)
        if generation.stream:
            return StreamingResponse(_events(answer, whole, generation.usage), media_type="text/event-stream")
        document = answer.whole([piece async for piece in whole])
        return Response(json.dumps(document), media_type="application/json")  # whatever letters an engine makes

    async def _noted(self, pieces: AsyncIterator[Piece], record: Record) -> AsyncIterator[Piece]:
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


async def _after(first: Piece, pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    yield first
    async for piece in pieces:
        yield piece


async def _events(answer: AnswerWriter, pieces: AsyncIterator[Piece], usage: bool) -> AsyncIterator[str]:
    """Yield the events of a stream, which ends with `[DONE]` or with an error."""
    last = None
    try:
        if begin := answer.first():
            yield begin
        async for piece in pieces:
            last = piece
            yield answer.chunk(piece)
    except RequestError as error:
        yield event(error.document())
        return
    if usage and last is not None:
        yield answer.usage(last)
    yield END


def _model(row: Row) -> dict[str, Any]:
    """Return an instance as OpenAI's clients read it."""
    return {"id": row["id"], "object": "model", "created": int(row["since"]), "owned_by": "paddock"}


def _refused(request: Request, error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer that states an error, and note it in the record of the request."""
    record_of(request.scope).failed(error.status, error.code)
    retry = {"Retry-After": str(error.retry_s)} if error.status in _RETRIED else {}
    return JSONResponse(error.document(), error.status, headers={**(headers or {}), **retry})


def _stated(error: Exception) -> RequestError:
    """Return an error as the client gets it. What nobody expected is named by its kind alone."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, TimeoutError):
        return RequestError("the model has not answered in time", 504, "timeout")
    print(f"gateway: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - goes to the actor's log
    return RequestError(f"the gateway failed: {type(error).__name__}", 500, "internal_error")
