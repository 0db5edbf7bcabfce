"""Passing on: a request to its server, and the answer's bytes to the client, with every failure stated."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from typing import Any

from paddock.openai.body import MOST_BYTES, REST_S
from paddock.openai.documents import parsed
from paddock.openai.errors import ExchangeError, short
from paddock.openai.errors import words as words_of
from paddock.openai.http import NotSentError, Response
from paddock.openai.request import refuses_usage
from paddock.serve.admission.limits import RequestError
from paddock.serve.errors import ServeInputError, first_line
from paddock.serve.gateway.answer import Judge, judged, renamed
from paddock.serve.gateway.exchange import JSON, Exchange
from paddock.serve.gateway.listing import Listing, Row
from paddock.serve.gateway.request import JUDGED, Request
from paddock.serve.gateway.upstream import Connections, Upstream, whole

_MOST_WORDS = 1 << 20
"""Bytes that are read of an engine's refusal."""
_NOTICED_S, _LOOK_S = 10.0, 0.1
"""Seconds in which the end of an engine or of its machine is noticed, and between two looks."""
_MOST_RETRY_S = 3600
_EVENTS = "text/event-stream"
_TOO_LONG = "context_length_exceeded"
_CONTEXT = re.compile(r"maximum context length|context size|context length|exceed_context_size", re.I)


class NotSent(Exception):
    """Nothing of the request reached the instance."""

    def __init__(self, error: ExchangeError) -> None:
        super().__init__(str(error))
        self.error = error


class Passing:
    """Passing of requests to the servers of instances."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._uncounted: set[tuple[str, str]] = set()
        """Servers that refuse `stream_options`, and their models."""

    async def answer(self, row: Row, request: Request, exchange: Exchange, listing: Listing) -> None:
        """Answer a request by an instance. Raises NotSent, and RequestError where the answer is not whole."""
        upstream: Upstream = row["upstream"]
        key = ""
        try:
            key = upstream.secret()
            exchange.sent = row
            response = await self._asked(upstream, request, key)
            if exchange.guard:
                exchange.guard.beat()
            if response.status != 200:
                await self._refused(row, response, request, exchange, key)
            elif _is_stream(response, request):
                await self._streamed(row, response, request, exchange)
            else:
                await self._at_once(row, response, request, exchange)
        except NotSentError as error:
            exchange.sent = None
            raise NotSent(ExchangeError(error.failure.kind, _masked(str(error), key))) from None
        except ExchangeError as error:
            if error.status and not exchange.began:
                words = _masked(str(error), key)
                raise RequestError(words, error.status, _code(words)) from None
            stated = ExchangeError(error.failure.kind, _masked(str(error), key))
            raise await self.gone(row, stated, listing) from None
        except ServeInputError as error:
            raise RequestError(first_line(error), 502, "engine_error") from None

    async def gone(self, row: Row, error: ExchangeError, listing: Listing) -> RequestError:
        """Return what a failure means: the instance was unloaded, its agent is gone, or the engine has failed."""
        id, engine = row["id"], f"the engine of {row['id']} failed: {error}"
        if error.failure.kind not in ("connection refused", "closed early", "timeout") or row["engine"] == "external":
            return RequestError(engine, 502, "engine_error")
        known = await self._known(row, listing)
        if known is None or known["state"] == "unloading":
            return RequestError(f"{id} has been unloaded", 502, "model_unloaded")
        why = known["reason"] or str(error)
        through = row["upstream"].through
        if known["state"] in ("lost", "pending") or (through and f"connect to {through}" in str(error)):
            return RequestError(f"the agent of {id} is gone: {why}", 502, "agent_lost")
        if known["state"] in ("loading", "failed"):
            # The process that held the engine is gone, or the engine alone has.
            code = "agent_lost" if known["reason"] and "its replica has ended" in known["reason"] else "engine_error"
            return RequestError(f"the engine of {id} failed: {why}", 502, code)
        return RequestError(engine, 502, "engine_error")

    async def _known(self, row: Row, listing: Listing) -> Row | None:
        """Return what is known of an instance once that says why its connection broke; None once it is not listed.

        Those who follow it notice within seconds. Where nothing changes, it is the row as it was.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _NOTICED_S
        while True:
            try:
                rows = await listing.newer()
            except RequestError:
                return row
            known = next((found for found in rows if found["id"] == row["id"]), None)
            if listing.problem:
                return row
            if known is None or known["state"] != "serving" or known.get("upstream") != row.get("upstream"):
                return known
            if loop.time() > deadline:
                return row
            await asyncio.sleep(_LOOK_S)

    async def _asked(self, upstream: Upstream, request: Request, key: str) -> Response:
        """Return the head of the answer. A server that refuses to count is asked again, and from then on, without."""
        server = upstream.url, upstream.model
        counted = server not in self._uncounted
        body = request.body(upstream.model, counted=counted)
        response = await self._connections.request(upstream, request.path, body, key)
        if not counted or response.status not in (400, 422) or not request.options:
            return response
        words = await whole(response, _MOST_WORDS)
        if not refuses_usage(words.decode(errors="replace")):
            return Response(response.status, response.headers, _again(words))
        self._uncounted.add(server)
        return await self._connections.request(upstream, request.path, request.body(upstream.model, counted=False), key)

    async def _refused(self, row: Row, response: Response, request: Request, exchange: Exchange, key: str) -> None:
        """Pass on a refusal for which the request is at fault. Raises RequestError for every other one."""
        status, id = response.status, row["id"]
        body = await whole(response, _MOST_WORDS)
        text = _masked(body.decode(errors="replace"), key)
        document = parsed(text)
        said = words_of(document) if isinstance(document, dict) else short(text)
        why = f": {said}" if said else ""
        if status in (429, 503, 529):
            busy = f"the engine of {id} is busy (HTTP {status}){why}"
            raise RequestError(busy, 503, "engine_busy", retry_s=_retry_s(response.headers.get("Retry-After", "")))
        if status in (401, 403):
            raise RequestError(f"the engine of {id} refuses its API key", 502, "engine_error")
        if not (400 <= status < 500 or status == 501) or (status == 404 and request.path in JUDGED):
            raise RequestError(f"the engine of {id} answers HTTP {status}{why}", 502, "engine_error")
        code = _code(json.dumps(document) if isinstance(document, dict) else "")
        if code == _TOO_LONG and isinstance(document, dict) and isinstance(document.get("error"), dict):
            document["error"]["code"] = code
            text = json.dumps(document)
        exchange.record.failed(status, code)
        await exchange.whole(status, response.headers.get("Content-Type", JSON), text.encode())

    async def _at_once(self, row: Row, response: Response, request: Request, exchange: Exchange) -> None:
        body, record = await whole(response, MOST_BYTES), exchange.record
        if request.path in JUDGED:
            if request.streams:
                raise ExchangeError("malformed", "one whole answer, and a stream was asked for" + _error_in(body))
            usage = judged(body)
            record.prompt_tokens, record.new_tokens = usage.prompt or 0, usage.completion
        if rename := _rename(row, request):
            body = renamed(body, *rename)
        record.first()
        record.outcome = "answered"
        await exchange.whole(200, response.headers.get("Content-Type", JSON), body)

    async def _streamed(self, row: Row, response: Response, request: Request, exchange: Exchange) -> None:
        if request.path not in JUDGED:
            await self._raw(response, exchange)
            return
        judge = Judge(withhold=request.options is not None, rename=_rename(row, request), several=request.several)
        async with aclosing(response.pieces) as pieces:  # type: ignore[type-var]  # it is a generator
            try:
                await self._judged(judge, pieces, exchange)
            finally:
                usage = judge.usage
                exchange.record.prompt_tokens, exchange.record.new_tokens = usage.prompt or 0, usage.completion
            if judge.failure:
                raise judge.failure
            await _read_out(pieces)

    async def _judged(self, judge: Judge, pieces: Any, exchange: Exchange) -> None:
        """Pass on a stream as far as its judge lets it."""
        record, guard, broken = exchange.record, exchange.guard, None
        while not judge.ended:
            try:
                piece = await anext(pieces, b"")
            except ExchangeError as error:
                broken, piece = error, b""
            if guard:
                guard.beat()
            passed = judge.feed(piece) if piece else judge.end(broken)
            if judge.done:
                record.outcome = "answered"
                if guard:
                    guard.close()
            if passed or judge.done:
                record.first()
                if not exchange.began:
                    await exchange.begin(200, _EVENTS, {"cache-control": "no-cache"})
                await exchange.body(passed, more=not judge.done)

    async def _raw(self, response: Response, exchange: Exchange) -> None:
        """Pass on a stream of another form. Raises ExchangeError where it breaks off."""
        async with aclosing(response.pieces) as pieces:  # type: ignore[type-var]  # it is a generator
            async for piece in pieces:
                if exchange.guard:
                    exchange.guard.beat()
                exchange.record.first()
                if not exchange.began:
                    await exchange.begin(200, _EVENTS, {"cache-control": "no-cache"})
                await exchange.body(piece, more=True)
        if not exchange.began:
            raise ExchangeError("malformed", "an answer without a token: nothing")
        exchange.record.outcome = "answered"
        await exchange.body(b"", more=False)


async def _read_out(pieces: Any) -> None:
    """Read the end of a body after `[DONE]`, so that its connection is used again."""
    try:
        async with asyncio.timeout(REST_S):
            while await anext(pieces, b""):
                pass
    except (TimeoutError, ExchangeError):
        pass


async def _again(data: bytes) -> Any:
    yield data


def _is_stream(response: Response, request: Request) -> bool:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return kind == _EVENTS or (request.streams and kind != JSON)


def _error_in(body: bytes) -> str:
    document = parsed(body.decode(errors="replace"))
    return f": {words_of(document)}" if isinstance(document, dict) else ""


def _code(words: str) -> str:
    return _TOO_LONG if _CONTEXT.search(words) else "invalid_request_error"


def _retry_s(text: str) -> int:
    """Return the seconds of a Retry-After, which may be a date (RFC 9110 §10.2.3); 1 where it says none."""
    try:
        seconds = int(text[:9]) if text.isdecimal() else parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return 1
    return max(1, min(_MOST_RETRY_S, math.ceil(seconds)))


def _rename(row: Row, request: Request) -> tuple[str, str] | None:
    """Return the server's name of the model and the client's; None where the instance goes by the server's name."""
    name = row["upstream"].model
    return None if name in (request.model, row["id"]) else (name, request.model)


def _masked(words: str, key: str) -> str:
    return words.replace(key, "[key]") if key else words
