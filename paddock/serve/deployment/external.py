"""External engine: an OpenAI-compatible endpoint by its URL, asked as a replica is.

Its API key stays in its file, which is read for every request, and in the head of requests; nothing else holds it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from paddock.openai.address import parse_url
from paddock.openai.answers import Piece
from paddock.openai.body import until_done
from paddock.openai.documents import parsed
from paddock.openai.errors import ExchangeError, OpenAIInputError
from paddock.openai.errors import words as words_of
from paddock.openai.http import HttpClient, Response
from paddock.openai.request import CHAT, COMPLETIONS, passed_on, refuses_usage
from paddock.openai.stream import Part, StreamReader
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation
from paddock.serve.deployment.row import InstanceRow
from paddock.serve.errors import ServeInputError, first_line

_MOST_BYTES = 1 << 20
"""Bytes that are read of an answer which is no stream."""
_MOST_LETTERS = 200
_REFUSED_S = 5.0


@dataclass(frozen=True, slots=True)
class External:
    """Endpoint of another server. `key_file` is empty where it asks for no key."""

    url: str
    model: str
    key_file: str = ""

    @classmethod
    def of(cls, url: str, model: str, key_file: Path | None) -> External:
        """Return the endpoint with a checked URL and key file. Raises ServeInputError."""
        try:
            address = parse_url(url)
        except OpenAIInputError as error:
            raise ServeInputError(
                f"--url: {str(error).partition(chr(10))[0].removeprefix('URL: ')}\n"
                "    expected: http:// or https://, such as http://localhost:8000\n"
                "    fix: leave keys out of the URL; --key-file names the file that holds one"
            ) from None
        if key_file is not None:
            _key(str(key_file))
        return cls(f"{address.origin}{address.prefix}", model, str(key_file or ""))

    async def problem(self, seconds: float) -> str:
        """Return why it does not serve its model; empty where it does."""
        try:
            async with asyncio.timeout(seconds):
                status, body = await self._listed()
        except TimeoutError:
            return f"it does not answer within {seconds:g} s"
        except ExchangeError as error:
            return str(error)
        except ServeInputError as error:
            return str(error).partition("\n")[0]
        except ValueError as error:
            return f"it does not answer: {error}"
        if status in (401, 403):
            return f"it refuses the API key with HTTP {status}; --key-file names the file that holds one"
        if status != 200:
            return f"/v1/models answers HTTP {status}"
        try:
            names = [str(row["id"]) for row in json.loads(body)["data"]]
        except (ValueError, LookupError, TypeError, RecursionError):
            return "/v1/models gives no list of models"
        shown = ", ".join(names[:5])[:_MOST_LETTERS] or "none"
        return "" if self.model in names else f"it has no model {self.model!r}; it lists {shown}"

    async def _listed(self) -> tuple[int, bytes]:
        client = self.client(self.key())
        try:
            response = await client.request("GET", f"{self.prefix}/v1/models")
            return response.status, await _whole(response)
        finally:
            client.close()

    @property
    def prefix(self) -> str:
        """Return the path before `/v1`."""
        return parse_url(self.url).prefix

    def key(self) -> str:
        """Return its API key, empty where it asks for none. Raises ServeInputError."""
        return _key(self.key_file) if self.key_file else ""

    def client(self, key: str) -> HttpClient:
        """Return a client with connections of its own."""
        return HttpClient(parse_url(self.url).origin, {"Authorization": f"Bearer {key}"} if key else {})

    def body(self, generation: Generation, *, counted: bool = True) -> bytes:
        """Return the request for the endpoint: what the client asked for, and always a stream, `counted` by it."""
        return json.dumps(passed_on(generation.document, self.model, counted=counted), allow_nan=False).encode()

    async def refused(self, response: Response, key: str) -> RequestError:
        """Return the answer of an endpoint that does not answer; its words only where the request is at fault."""
        status = response.status
        async with asyncio.timeout(_REFUSED_S):
            body = await _whole(response)
        if status in (429, 503):
            return RequestError(f"the endpoint of {self.model} is busy (HTTP {status})", 503, "engine_busy")
        if status in (401, 403):
            return RequestError(f"the endpoint of {self.model} refuses its API key", 502, "engine_error")
        if status not in (400, 413, 422):
            return RequestError(f"the endpoint of {self.model} answers HTTP {status}", 502, "engine_error")
        document = parsed(body.decode(errors="replace"))
        said = words_of(document) if isinstance(document, dict) else f"HTTP {status}"
        return RequestError(f"the endpoint of {self.model} refuses it: {_masked(said, key)}")


class Connections:
    """Kept connections to endpoints, of one event loop."""

    def __init__(self) -> None:
        self._clients: dict[External, tuple[str, HttpClient]] = {}
        self._uncounted: set[External] = set()

    async def generate(self, external: External, generation: Generation) -> AsyncGenerator[Piece, None]:
        """Yield an endpoint's answer as it comes. Raises RequestError. Closing the generator ends its request."""
        key = ""
        try:
            key, client = await self._client(external)
            path = f"{external.prefix}{CHAT if generation.chat else COMPLETIONS}"
            counted = external not in self._uncounted
            response = await client.request("POST", path, external.body(generation, counted=counted))
            if response.status != 200:
                refusal = await external.refused(response, key)
                if not counted or not refuses_usage(str(refusal)):
                    raise refusal
                self._uncounted.add(external)
                response = await client.request("POST", path, external.body(generation, counted=False))
                if response.status != 200:
                    raise await external.refused(response, key)
            async with aclosing(_answer(response, generation)) as pieces:
                async for piece in pieces:
                    yield piece
        except ExchangeError as error:
            words = _masked(str(error), key)
            raise RequestError(f"the endpoint of {external.model} failed: {words}", 502, "engine_error") from None
        except ServeInputError as error:
            raise RequestError(first_line(error), 502, "engine_error") from None

    def close(self) -> None:
        """Close all connections."""
        for _, client in self._clients.values():
            client.close()

    async def _client(self, external: External) -> tuple[str, HttpClient]:
        """Return the endpoint's key and client, a new one where the key has changed. Raises ServeInputError."""
        key = external.key()
        known = self._clients.get(external)
        if known is None or known[0] != key:
            # In a thread: a client that speaks TLS reads the certificates of all authorities.
            known = key, await asyncio.to_thread(external.client, key)
            self._clients[external] = known
        return known


def _masked(words: str, key: str) -> str:
    return words.replace(key, "[key]") if key else words


async def _answer(response: Response, generation: Generation) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of a streamed answer; the last one waits for the usage, which comes after it.

    The operator's limit ends an answer for which the request has none. Raises ExchangeError.
    """
    reader, counted, last = StreamReader(), 0, None
    async with aclosing(_parts(reader, response)) as parts:
        async for part in parts:
            counted += part.tokens if part.tokens is not None else part.spoken
            if last:
                yield last
            usage = reader.usage
            piece = Piece(
                part.text, usage.prompt or 0 if usage else 0, max(counted, usage.completion if usage else 0), "",
                part.tool_calls, part.delta, part.choice, part.top,
            )  # fmt: skip
            last = None
            if generation.max_tokens is None and piece.new_tokens >= generation.most:
                yield replace(piece, finish="length")
                return
            if reader.finish:
                last = piece
            else:
                yield piece
    usage = reader.usage
    if usage:
        last = replace(
            last or Piece("", 0, 0), prompt_tokens=usage.prompt or 0, new_tokens=usage.completion,
            top={**(last.top if last else {}), **reader.top}, usage=usage.document,
        )  # fmt: skip
    yield replace(last or Piece("", 0, counted), finish=reader.finish)


async def _parts(reader: StreamReader, response: Response) -> AsyncGenerator[Part, None]:
    async with aclosing(until_done(response.pieces)) as pieces:
        while True:
            try:
                piece = await anext(pieces, b"")
            except ExchangeError:
                if not reader.finish:
                    raise
                break  # all of the answer has come, also where the endpoint breaks off before [DONE]
            if not piece:
                break
            for part in reader.feed(0.0, piece):
                yield part
    for part in reader.end(0.0):
        yield part


async def _whole(response: Response) -> bytes:
    body = b""
    async with aclosing(response.pieces) as pieces:  # type: ignore[type-var]  # it is a generator
        async for piece in pieces:
            body += piece
            if len(body) > _MOST_BYTES:
                raise ExchangeError("malformed", f"its answer is larger than {_MOST_BYTES} bytes")
    return body


def _key(file: str) -> str:
    """Return the API key of a file. Raises ServeInputError, which never shows it."""
    expected = "\n    expected: one API key of ASCII characters on one line"
    try:
        key = Path(file).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not ASCII"
        raise ServeInputError(f"{file}: the API key cannot be read: {why}{expected}") from None
    if not key or not key.isprintable() or " " in key:
        raise ServeInputError(f"{file}: no API key{expected}")
    return key


@dataclass(slots=True)
class Endpoint:
    """Declared endpoint, and where it stands. It has no device and no lease."""

    id: str
    external: External
    concurrency: int
    since: float
    reason: str = "it has not been checked yet"

    def check(self, seconds: float) -> None:
        """Ask whether it serves its model."""
        self.reason = asyncio.run(self.external.problem(seconds))

    def document(self) -> dict[str, Any]:
        """Return it as JSON types."""
        external = self.external
        return InstanceRow(
            self.id, external.model, "unreachable" if self.reason else "serving", self.reason or None, "External",
            None, None, None, self.concurrency, self.since, url=external.url, key_file=external.key_file or None,
            engine="external",
        ).document()  # fmt: skip

    def saved(self) -> dict[str, Any]:
        """Return what a head that starts anew needs to know."""
        return {"id": self.id, "concurrency": self.concurrency, **asdict(self.external)}


def endpoint(id: str, concurrency: int, url: str, model: str, key_file: str) -> Endpoint:
    """Return an endpoint that has not been checked yet."""
    return Endpoint(id, External(url, model, key_file), concurrency, time.time())


def external_of(row: Mapping[str, Any]) -> External | None:
    """Return the endpoint of a listed instance; None where that is a replica."""
    return External(row["url"], row["model"], row["key_file"] or "") if row.get("url") else None
