"""Endpoint: its address, its model and which extensions of OpenAI's API it accepts, asked before the load begins."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import SplitResult, urlsplit

from paddock.bench.errors import BenchError, BenchInputError
from paddock.bench.load.client.http import HttpClient, HttpFailure
from paddock.bench.load.client.messages import Exchange, Failure, Target
from paddock.bench.load.stream.answer import Answer, read_answer
from paddock.bench.load.workload import Request

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
_USAGE: Mapping[str, Any] = {"stream_options": {"include_usage": True}}
# vLLM's: the answer has its full length, and each chunk says which tokens are in it.
_EXTENSIONS: Mapping[str, Any] = {
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "ignore_eos": True,
    "return_token_ids": True,
}
_DIALECTS: tuple[Mapping[str, Any], ...] = (_EXTENSIONS, {**_USAGE, "ignore_eos": True}, _USAGE, {})
"""Extensions, most first: an endpoint that refuses a field gets the next."""
_REFUSED = (400, 422)
_ABSENT = (404, 405, 501)
_PROBE = Request(-1, 32, 2)


@dataclass(frozen=True, slots=True)
class Address:
    """Address of an endpoint; `paths` are tried in their order."""

    origin: str
    prefix: str
    paths: tuple[str, ...]


def parse_url(url: str) -> Address:
    """Read the URL of a server, of its ``/v1``, or of one of its two endpoints. Raises BenchInputError."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    try:
        bad = parts.scheme not in ("http", "https") or not parts.hostname or parts.hostname[0] == "-" or parts.port == 0
    except ValueError:
        bad = True
    if bad or parts.query or parts.fragment or any(character <= " " for character in url):
        raise _not_an_address(url)
    if parts.username is not None:
        raise BenchInputError(
            "URL: it holds a user or a password, which everyone on this machine can read\n"
            "    fix: put the key into an environment variable and name that with --key-env"
        )
    return _address(parts)


def _address(parts: SplitResult) -> Address:
    path = parts.path.rstrip("/")
    paths: tuple[str, ...] = (COMPLETIONS, CHAT)
    for endpoint in (CHAT, COMPLETIONS):
        if path.endswith(endpoint):
            path, paths = path.removesuffix(endpoint), (endpoint,)
            break
    return Address(f"{parts.scheme}://{parts.netloc}", path.removesuffix("/v1"), paths)


def _not_an_address(url: str) -> BenchInputError:
    return BenchInputError(
        f"URL: {url!r} is no address of a server\n    expected: http:// or https://, such as http://localhost:8000"
        "\n    fix: ./inv --help bench.load lists the flags"
    )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Endpoint that gave a first answer."""

    target: Target
    model: str
    answer: Answer

    @property
    def accepted(self) -> tuple[str, ...]:
        """Names of the extensions that it does not refuse."""
        return tuple(sorted({*self.target.body} - {"model", "stream", "temperature"}))


def probe(address: Address, *, model: str = "", key: str = "", verify: bool = True, timeout: float = 60.0) -> Endpoint:
    """Ask for a first short answer. Raises BenchError where there is none, and says what came instead."""
    return asyncio.run(_probe(address, model, Target(address.origin, "", {}, False, key=key, verify=verify), timeout))


async def _probe(address: Address, model: str, target: Target, timeout: float) -> Endpoint:
    http = HttpClient(address.origin, target.headers, verify=target.verify)
    try:
        model = model or await _first_model(http, address, timeout)
        status: int | None = None
        failure, place = Failure("malformed", "nothing"), address.origin
        for path in address.paths:
            for dialect in _DIALECTS:
                body = {"model": model, "stream": True, "temperature": 0, **dialect}
                tried = replace(
                    target,
                    path=f"{address.prefix}{path}",
                    chat=path == CHAT,
                    body=body,
                    exact="ignore_eos" in dialect,
                )
                answer = await _ask(http, tried, timeout)
                if answer.succeeded:
                    return Endpoint(tried, model, answer)
                failure, place = answer.failure or failure, f"{address.origin}{tried.path}"
                status = answer.exchange.status
                if status not in _REFUSED:
                    break
            if status not in _ABSENT:
                break
        raise _no_answer(place, failure)
    finally:
        http.close()


async def _first_model(http: HttpClient, address: Address, timeout: float) -> str:
    """Return the first model that the server lists."""
    path = f"{address.prefix}/v1/models"
    exchange = await _exchange(http, "GET", path, b"", timeout)
    if exchange.failure and exchange.failure.kind != "HTTP status":
        raise _no_answer(f"{address.origin}{path}", exchange.failure)
    body = b"".join(piece for _, piece in exchange.pieces)
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        shown = " ".join(body[:200].decode(errors="replace").split()) or "nothing"
        hint = (
            "name the environment variable that holds the server's key with --key-env"
            if exchange.status in (401, 403)
            else "check the address, or name the model with --model"
        )
        raise BenchError(
            f"{address.origin}{path}: no list of models, but HTTP {exchange.status}: {shown}\n"
            f"    expected: an OpenAI-compatible server\n    fix: {hint}"
        ) from None


async def _ask(http: HttpClient, target: Target, timeout: float) -> Answer:
    return read_answer(await _exchange(http, "POST", target.path, target.request_body(_PROBE, seed=0), timeout))


async def _exchange(http: HttpClient, method: str, path: str, body: bytes, timeout: float) -> Exchange:
    begun = time.monotonic()
    status, failure, pieces = None, None, []
    try:
        async with asyncio.timeout(timeout):
            response = await http.request(method, path, body)
            status = response.status
            pieces = [(time.monotonic() - begun, piece) async for piece in response.pieces]
            failure = Failure("HTTP status", str(status)) if status != 200 else None
    except HttpFailure as error:
        failure = error.failure
    except TimeoutError:
        failure = Failure("timeout", f"no whole answer within {timeout:g} s")
    ended = time.monotonic() - begun
    return Exchange(-1, 0.0, 0.0, ended, _PROBE.new, status=status, pieces=tuple(pieces), failure=failure)


_FIXES = {
    "connection refused": "start the server, or check host and port",
    "TLS": "trust the server's authority (SSL_CERT_FILE), or give --insecure for a server of your own",
    "timeout": "see whether the server has loaded its model, or give it longer with --timeout",
}


def _no_answer(place: str, failure: Failure) -> BenchError:
    fix = _FIXES.get(failure.kind, "")
    if failure.kind == "HTTP status" and failure.message.startswith(("401", "403")):
        fix = "name the environment variable that holds the server's key with --key-env"
    expected = "" if fix else "\n    expected: a streamed answer of OpenAI's API (server-sent events)"
    kind = "HTTP " if failure.kind == "HTTP status" else f"{failure.kind}: "
    return BenchError(f"{place}: {kind}{failure.message}{expected}" + (f"\n    fix: {fix}" if fix else ""))
