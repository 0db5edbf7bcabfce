"""Endpoint: its address, its model and which extensions of OpenAI's API it accepts, asked before the load begins."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from paddock.bench.errors import BenchError
from paddock.bench.load.answer import Answer, read_answer
from paddock.bench.load.client.messages import Exchange, Target
from paddock.bench.load.client.sender import exchanged
from paddock.bench.load.workload import Request
from paddock.openai.address import Address
from paddock.openai.errors import Failure
from paddock.openai.http import HttpClient
from paddock.openai.request import CHAT, ENGINES, OPENAI, Dialect, asks_for, dialect_of

_USAGE: Mapping[str, Any] = {"stream_options": {"include_usage": True}}
# vLLM's: the answer has its full length, and each chunk says which tokens are in it.
_EXTENSIONS: Mapping[str, Any] = {
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "ignore_eos": True,
    "return_token_ids": True,
}
_MOST_FIRST: tuple[Mapping[str, Any], ...] = (_EXTENSIONS, {**_USAGE, "ignore_eos": True}, _USAGE, {})
"""Extensions, most first: an endpoint that refuses a field gets the next."""
_REFUSED = (400, 422)
_ABSENT = (404, 405, 501)
_PROBE = Request(-1, 32, 2)
_MOST_CHANGES = 2
"""Changes of the dialect: of the limit's field, and of the temperature."""
_WORDS = 4096
"""Bytes of a refusal that are looked at for what it asks."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Endpoint that gave a first answer."""

    target: Target
    model: str
    answer: Answer

    @property
    def accepted(self) -> tuple[str, ...]:
        """Names of the extensions that it does not refuse, its own field for the limit of tokens among them."""
        return tuple(sorted({*self.target.body, self.target.limit} - {"model", "stream", "temperature", "max_tokens"}))


def probe(
    address: Address, *, model: str = "", key: str = "", verify: bool = True, timeout: float = 60.0, dialect: str = ""
) -> Endpoint:
    """Ask for a first short answer. Raises BenchError where there is none, and says what came instead.

    Without a dialect it is that of engines, or what the server asks for.
    """
    target = Target(address.origin, "", {}, False, key=key, verify=verify)
    return asyncio.run(_probe(address, model, target, timeout, dialect_of(dialect) if dialect else None))


async def _probe(address: Address, model: str, target: Target, timeout: float, chosen: Dialect | None) -> Endpoint:
    http, dialect = HttpClient(address.origin, target.headers, verify=target.verify), chosen or ENGINES
    try:
        model = model or await _first_model(http, address, timeout)
        tried, answer = await _answered(http, address, target, model, dialect, timeout)
        wanted = asks_for(_refusal(answer), dialect)
        for _ in range(_MOST_CHANGES if chosen is None else 0):
            if wanted:
                tried, answer = await _answered(http, address, target, model, wanted, timeout)
                wanted = asks_for(_refusal(answer), wanted)
    finally:
        http.close()
    if answer.failure:
        raise _no_answer(f"{address.origin}{tried.path}", answer.failure, wanted if chosen else None)
    return Endpoint(tried, model, answer)


async def _answered(
    http: HttpClient, address: Address, target: Target, model: str, dialect: Dialect, timeout: float
) -> tuple[Target, Answer]:
    """Return the answer of the first path that there is, with the most extensions that the server takes."""
    tried, answer = target, Answer(Exchange(-1, 0.0, 0.0, 0.0, 0, status=_ABSENT[0]))
    # A chat alone has max_completion_tokens.
    for path in sorted(address.paths, key=lambda path: dialect.limit == OPENAI.limit and path != CHAT):
        if answer.exchange.status not in _ABSENT:
            break
        for extensions in _MOST_FIRST:
            tried = replace(
                target, path=f"{address.prefix}{path}", chat=path == CHAT, exact="ignore_eos" in extensions,
                body={"model": model, "stream": True, **dialect.body, **extensions}, limit=dialect.limit,
            )  # fmt: skip
            body = tried.request_body(_PROBE, seed=0)
            answer = read_answer(await _exchange(http, "POST", tried.path, body, timeout))
            if answer.exchange.status not in _REFUSED:
                break
    return tried, answer


def _refusal(answer: Answer) -> str:
    """Return the words of a refusal, empty where the answer is not one."""
    if answer.exchange.status not in _REFUSED:
        return ""
    return b"".join(piece for _, piece in answer.exchange.pieces)[:_WORDS].decode(errors="replace")


async def _first_model(http: HttpClient, address: Address, timeout: float) -> str:
    """Return the first model that the server lists."""
    path = f"{address.prefix}/v1/models"
    exchange = await _exchange(http, "GET", path, b"", timeout)
    if exchange.failure and exchange.failure.kind != "HTTP status":
        raise _no_answer(f"{address.origin}{path}", exchange.failure)
    body = b"".join(piece for _, piece in exchange.pieces)
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError, RecursionError):
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


async def _exchange(http: HttpClient, method: str, path: str, body: bytes, timeout: float) -> Exchange:
    begun, blank = time.monotonic(), Exchange(-1, 0.0, 0.0, 0.0, _PROBE.new)
    return (await exchanged(http, (method, path, body), blank, lambda: time.monotonic() - begun, timeout))[0]


_FIXES = {
    "connection refused": "start the server, or check host and port",
    "TLS": "trust the server's authority (SSL_CERT_FILE), or give --insecure for a server of your own",
    "timeout": "see whether the server has loaded its model, or give it longer with --timeout",
}


def _no_answer(place: str, failure: Failure, wanted: Dialect | None = None) -> BenchError:
    fix = _FIXES.get(failure.kind, "")
    if failure.kind == "HTTP status" and failure.message.startswith(("401", "403")):
        fix = "name the environment variable that holds the server's key with --key-env"
    if wanted:
        fix = f"--dialect {wanted.name}, or leave --dialect out"
    expected = "" if fix else "\n    expected: a streamed answer of OpenAI's API (server-sent events)"
    kind = "HTTP " if failure.kind == "HTTP status" else f"{failure.kind}: "
    return BenchError(f"{place}: {kind}{failure.message}{expected}" + (f"\n    fix: {fix}" if fix else ""))
