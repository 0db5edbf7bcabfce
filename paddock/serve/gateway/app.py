"""OpenAI-compatible HTTP before engines: an ASGI application that passes requests on, and answers as their bytes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import math
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as Asked
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paddock.errors import did_you_mean
from paddock.openai.errors import ExchangeError
from paddock.serve.admission.limits import Limits, RequestError, Users
from paddock.serve.gateway.exchange import Exchange, Guard, Receive, Record, Scope, Send, Who
from paddock.serve.gateway.listing import Listing, Row, choose
from paddock.serve.gateway.metrics import CONTENT_TYPE, Metrics
from paddock.serve.gateway.passing import NotSent, Passing
from paddock.serve.gateway.places import Moved, Places
from paddock.serve.gateway.request import JUDGED, PATHS, Request
from paddock.serve.gateway.upstream import Connections

_RETRIED = (429, 503)
_MOVE_S, _AGAIN_S = 5.0, 0.2
"""Seconds in which a request that was not sent looks for another instance, and between two looks."""
_GONE = ("", "lost", "pending", "loading", "failed")


class Gateway:
    """ASGI application before the instances. `keys` are SHA-256 sums of API keys; without any, programs of this machine
    may ask.

    `list_models` returns the instances: `id`, `model`, `state`, `reason`, `since`, `concurrency`, `mode`, `paced`,
    `throttle`, `engine_metrics`, and under `upstream` the server that answers for it (`Upstream`).
    """

    def __init__(
        self,
        list_models: Callable[[], Awaitable[Iterable[Row]]],
        keys: frozenset[str] = frozenset(),
        limits: Limits | None = None,
    ) -> None:
        self._keys, self._limits = keys, limits or Limits()
        self._listing = Listing(list_models, self._changed)
        self._users = Users(self._limits)
        self._places: dict[str, Places] = {}
        self._connections = Connections()
        self._passing = Passing(self._connections)
        self._metrics = Metrics()
        routes = {
            "/health": self.health, "/metrics": self.metrics,
            "/v1/models": self.models, "/v1/models/{id:path}": self.model,
        }  # fmt: skip
        self._others = Starlette(
            routes=[Route(path, self._answered(handler)) for path, handler in routes.items()],
            exception_handlers={HTTPException: self._not_routed},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http" or scope["path"] not in PATHS:
            await self._others(scope, receive, send)
            return
        record = Record()
        self._metrics.begin()
        try:
            await self._generate(scope, receive, send, record)
        finally:
            record.seconds = time.perf_counter() - record.began
            self._metrics.end(record)
            if places := self._places.get(record.model):
                places.count(record)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Close what is open when the server ends."""
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await self._connections.close()
        await send({"type": "lifespan.shutdown.complete"})

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Return what is counted of each instance that requests have come to, by its id."""
        return {id: places.statistics() for id, places in list(self._places.items())}

    async def health(self, request: Asked) -> Response:
        """Say whether the scheduler answers; without it models still do, and none is placed again."""
        models = await self._listing.newer()
        serving = sum(model["state"] == "serving" for model in models)
        problem = self._listing.problem
        return JSONResponse(
            {"status": problem or "ok", "models": len(models), "serving": serving}, 503 if problem else 200
        )

    async def metrics(self, request: Asked) -> Response:
        with contextlib.suppress(RequestError):  # what else is counted can be read all the same
            await self._listing.rows()
        text = self._metrics.text(self._listing.known, self.statistics(), self._listing.problem)
        return Response(text, media_type=CONTENT_TYPE)

    async def models(self, request: Asked) -> Response:
        self._key(request.headers)
        rows = [_model(model) for model in await self._listing.newer() if model["state"] == "serving"]
        return JSONResponse({"object": "list", "data": rows})

    async def model(self, request: Asked) -> Response:
        self._key(request.headers)
        return JSONResponse(_model(await self._instance(request.path_params["id"])))

    async def _generate(self, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        """Answer a request that goes to an engine."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        exchange = Exchange(send, record)
        guard = None
        try:
            if scope["method"] != "POST":
                raise RequestError(
                    f"{scope['path']}: {scope['method'][:20]} is not allowed here", 405, "method_not_allowed"
                )
            if not self._keys:
                check_local("POST", headers)
            if (encoding := headers.get("content-encoding", "identity").lower()) != "identity":
                raise RequestError(
                    f"Content-Encoding: {encoding[:20]} is not read here; send the body as it is", 415,
                    "unsupported_media_type",
                )  # fmt: skip
            user = self._key(headers)  # before a byte of the body is read
            request = Request.of(scope["path"], await self._body(receive), self._limits.most)
            record.judged = request.path in JUDGED
            exchange.who = Who(headers.get("openai-project", ""), request.user or user)
            with self._users.request(user or request.user):
                exchange.guard = guard = Guard(receive, self._limits.piece_seconds, lambda: self._is_lost(exchange))
                await self._pass_on(request, exchange)
        except _Left:
            pass
        except asyncio.CancelledError:
            if guard is None or not guard.why:
                raise
            if task := asyncio.current_task():
                task.uncancel()
            guard.close()
            if guard.why == "late":
                await exchange.refuse(RequestError("the model has not answered in time", 504, "timeout"))
            elif guard.why == "lost" and exchange.sent:
                silent = ExchangeError("closed early", "its machine is silent")
                await exchange.refuse(await self._passing.gone(exchange.sent, silent, self._listing))
        except Exception as error:
            if guard:
                guard.close()
            await exchange.refuse(_stated(error))
        finally:
            if guard:
                guard.close()

    def _is_lost(self, exchange: Exchange) -> bool:
        """Tell whether the instance that has a request is known to be gone."""
        rows = self._listing.poll()
        if exchange.sent is None or self._listing.problem:
            return False
        return next((row["state"] for row in rows if row["id"] == exchange.record.model), "") in _GONE

    async def _pass_on(self, request: Request, exchange: Exchange) -> None:
        """Send a request to an instance; to another one if that was gone before it was sent. Raises RequestError."""
        loop = asyncio.get_running_loop()
        until, error, avoided = 0.0, None, set[str]()
        while True:
            try:
                row = await self._instance(request.model, avoided)
            except RequestError as refused:
                if not until or loop.time() > until:
                    raise error or refused from None
                await asyncio.sleep(_AGAIN_S)
                continue
            try:
                return await self._at(row, request, exchange)
            except Moved:
                pass
            except NotSent as refused:
                error = await self._passing.gone(row, refused.error, self._listing)
                if refused.error.failure.kind != "connection refused" or (until and loop.time() > until):
                    raise error from None
                avoided.add(row["id"])
                await asyncio.sleep(_AGAIN_S)
            until = until or loop.time() + _MOVE_S

    async def _at(self, row: Row, request: Request, exchange: Exchange) -> None:
        """Answer a request at an instance. Raises RequestError; Moved and NotSent where it may go to another one."""
        id = exchange.record.model = row["id"]
        places = self._places.get(id)
        if places is None:
            places = self._places[id] = Places(row, self._limits.queue)

        async def serves() -> bool:
            return any(known["id"] == id and known["state"] == "serving" for known in await self._listing.rows())

        began = await places.enter(serves, exchange.who)
        try:
            await self._passing.answer(places.row, request, exchange, self._listing)
        finally:
            places.leave(began, exchange.who)

    def _changed(self, rows: Iterable[Row]) -> None:
        """Take over what was listed: the places of an instance that is gone end with it, where none is taken."""
        by_id = {row["id"]: row for row in rows}
        for id, places in list(self._places.items()):
            if id in by_id:
                places.row = by_id[id]
            elif not places.running and not places.waiting:
                del self._places[id]
        self._connections.keep(row["upstream"] for row in by_id.values() if row.get("upstream"))

    async def _instance(self, name: str, avoided: Collection[str] = ()) -> Row:
        """Return the serving instance of that id or model; one that is avoided comes last. Raises RequestError."""

        def load(id: str) -> float:
            return math.inf if id in avoided else self._places[id].load if id in self._places else 0.0

        chosen = None
        for read in (self._listing.rows, self._listing.newer):
            chosen = choose(await read(), name, load)
            if chosen and chosen["state"] == "serving":
                return chosen
        if chosen:
            why = f": {chosen['reason']}" if chosen["reason"] else ""
            raise RequestError(f"{name} is {chosen['state']}{why}", 503, "model_not_ready")
        names = {str(row[key]) for row in self._listing.known for key in ("id", "model")}
        hint = did_you_mean(name[:100], names, "/v1/models lists them")
        raise RequestError(f"{name!a} is not a model here; {hint}", 404, "model_not_found", "model")

    def _key(self, headers: Mapping[str, str]) -> str:
        """Return the sum of the API key; empty where none is asked for. Raises RequestError."""
        if not self._keys:
            return ""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get("x-api-key", "")  # as clients of /v1/messages send it
        sum_ = hashlib.sha256(key.strip().encode()).hexdigest()
        # Every sum is compared, so that time says nothing about the place of the right one.
        right = [hmac.compare_digest(sum_, expected) for expected in self._keys]
        if not any(right):
            raise RequestError("the API key is missing or wrong", 401, "invalid_api_key")
        return sum_

    async def _body(self, receive: Receive) -> bytes:
        """Return the body, and read no more of it than is allowed, nor longer. Raises RequestError."""
        parts, size, most = [], 0, self._limits.body_bytes
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Left
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise RequestError(f"the body is larger than {most} bytes", 413)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise RequestError("the body did not appear in time", 408, "request_timeout") from None

    def _answered(self, handler: Callable[[Asked], Awaitable[Response]]) -> Callable[[Asked], Awaitable[Response]]:
        """Return the handler with every error as OpenAI's."""

        async def handle(request: Asked) -> Response:
            try:
                if not self._keys:
                    check_local(request.method, request.headers)
                return await handler(request)
            except Exception as error:
                return _refusal(_stated(error))

        return handle

    async def _not_routed(self, request: Asked, error: Exception) -> Response:
        """Answer a path or a method that is not served."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        code, why = "not_found", "nothing is served here"
        if status == 405:
            code, why = "method_not_allowed", f"{request.method[:20]} is not allowed here"
        stated = RequestError(f"{request.url.path[:200]}: {why}", status, code)
        return _refusal(stated, getattr(error, "headers", None))


class _Left(Exception):
    """The client disconnected while it sent the body."""


def _model(row: Row) -> dict[str, Any]:
    """Return an instance as OpenAI's clients read it."""
    return {"id": row["id"], "object": "model", "created": int(row["since"] or 0), "owned_by": "paddock"}


def _refusal(error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    retry = {"Retry-After": str(error.retry_s)} if error.status in _RETRIED else {}
    return JSONResponse(error.document(), error.status, headers={**(headers or {}), **retry})


def _stated(error: Exception) -> RequestError:
    """Return an error as the client gets it. What nobody expected is named by its kind alone."""
    if isinstance(error, RequestError):
        return error
    print(f"gateway: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - goes to the gateway's log
    return RequestError(f"the gateway failed: {type(error).__name__}", 500, "internal_error")


_JSON = "application/json"


def check_local(method: str, headers: Mapping[str, str]) -> None:
    """Check the address that was asked for, and that a body says that it is JSON. Raises RequestError."""
    host = headers.get("host", "")
    if not _is_loopback(host):
        raise RequestError(
            f"Host is {host[:100]!r}: without API keys this answers only at localhost or 127.0.0.1", 403,
            "host_not_allowed",
        )  # fmt: skip
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and kind != _JSON:
        raise RequestError(f"Content-Type: {_JSON} is needed", 415, "unsupported_media_type")


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
