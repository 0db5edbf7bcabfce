"""External engine: an OpenAI-compatible endpoint by its URL, asked as a replica is.

Its API key stays in its file, which is read for every request; nothing else holds it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paddock.bench.errors import BenchInputError
from paddock.bench.load.client.http import HttpClient, HttpFailure, Response
from paddock.bench.load.endpoint import CHAT, COMPLETIONS, parse_url
from paddock.bench.load.stream.sse import EventReader
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation
from paddock.serve.deployment.replica import Piece
from paddock.serve.deployment.row import InstanceRow
from paddock.serve.errors import ServeInputError

_MOST_BYTES = 1 << 20
"""Bytes that are read of an answer which is no stream."""
_MOST_LETTERS = 200


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
        except BenchInputError as error:
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
        except HttpFailure as error:
            return str(error)
        except ServeInputError as error:
            return str(error).partition("\n")[0]
        except ValueError as error:
            return f"it cannot be asked: {error}"
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

    async def generate(self, generation: Generation) -> AsyncGenerator[Piece, None]:
        """Yield the answer as it comes. Raises RequestError. Closing the generator ends the endpoint's request."""
        client: HttpClient | None = None
        try:
            client, prefix = self._client()
            path = f"{prefix}{CHAT if generation.chat else COMPLETIONS}"
            response = await client.request("POST", path, json.dumps(self._body(generation)).encode())
            if response.status != 200:
                raise await self._refused(response)
            async with aclosing(_answer(response)) as pieces:
                async for piece in pieces:
                    yield piece
        except HttpFailure as error:
            raise RequestError(f"the endpoint of {self.model} failed: {error}", 502, "engine_error") from None
        except ServeInputError as error:
            raise RequestError(str(error).partition("\n")[0], 502, "engine_error") from None
        finally:
            if client is not None:
                client.close()

    def _client(self) -> tuple[HttpClient, str]:
        """Return a client of its own connection, and the path before `/v1`. Raises ServeInputError."""
        address = parse_url(self.url)
        headers = {"Authorization": f"Bearer {_key(self.key_file)}"} if self.key_file else {}
        return HttpClient(address.origin, headers), address.prefix

    async def _listed(self) -> tuple[int, bytes]:
        client, prefix = self._client()
        try:
            response = await client.request("GET", f"{prefix}/v1/models")
            return response.status, await _whole(response)
        finally:
            client.close()

    def _body(self, generation: Generation) -> dict[str, Any]:
        text = {"messages": list(generation.messages)} if generation.chat else {"prompt": generation.prompt}
        return {
            "model": self.model, **text, "max_tokens": generation.max_tokens, "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip

    async def _refused(self, response: Response) -> RequestError:
        """Return the answer of an endpoint that does not answer; its words only where the request is at fault."""
        status = response.status
        if status in (429, 503):
            return RequestError(f"the endpoint of {self.model} is busy (HTTP {status})", 503, "engine_busy")
        if status in (401, 403):
            return RequestError(f"the endpoint of {self.model} refuses its API key", 502, "engine_error")
        if status not in (400, 413, 422):
            return RequestError(f"the endpoint of {self.model} answers HTTP {status}", 502, "engine_error")
        try:
            words = str(json.loads(await _whole(response))["error"]["message"])
        except (ValueError, LookupError, TypeError, RecursionError):
            words = f"HTTP {status}"
        if self.key_file:
            words = words.replace(_key(self.key_file), "[key]")
        return RequestError(f"the endpoint of {self.model} refuses it: {' '.join(words.split())[:_MOST_LETTERS]}")


async def _answer(response: Response) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of a streamed answer; the last one when its usage has come too. Raises RequestError."""
    reader = EventReader()
    prompt_tokens = new_tokens = 0
    finish, last = "", ""
    try:
        async for piece in response.pieces:
            for event in reader.feed(0.0, piece):
                if event.data.strip() == "[DONE]":
                    if finish:
                        yield Piece(last, prompt_tokens, new_tokens, finish)
                    return
                document = json.loads(event.data)
                if document.get("error"):
                    raise RequestError("the endpoint ended its answer with an error", 502, "engine_error")
                text, ended = _content(document)
                new_tokens += bool(text)
                if usage := document.get("usage"):
                    prompt_tokens, new_tokens = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
                if ended or finish:
                    finish, last = finish or ended, last + text
                elif text:
                    yield Piece(text, prompt_tokens, new_tokens)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RequestError(
            f"the endpoint sends what is no answer: {type(error).__name__}", 502, "engine_error"
        ) from None
    except HttpFailure:
        if not finish:
            raise
    if finish:  # all of the answer has come, and the endpoint leaves out [DONE]
        yield Piece(last, prompt_tokens, new_tokens, finish)


def _content(document: dict[str, Any]) -> tuple[str, str]:
    """Return the text of a chunk, and why the answer ends with it."""
    choices = document["choices"]
    if not choices:
        return "", ""
    choice = choices[0]
    text = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
    finish = choice.get("finish_reason") or ""
    if not isinstance(text, str) or not isinstance(finish, str):
        raise TypeError
    return text, finish


async def _whole(response: Response) -> bytes:
    body = b""
    async for piece in response.pieces:
        body += piece
        if len(body) > _MOST_BYTES:
            raise HttpFailure("malformed", f"its answer is larger than {_MOST_BYTES} bytes")
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
        ).document()  # fmt: skip

    def saved(self) -> dict[str, Any]:
        """Return what a head that starts anew needs to know."""
        return {"id": self.id, "concurrency": self.concurrency, **asdict(self.external)}


def endpoint(id: str, concurrency: int, url: str, model: str, key_file: str) -> Endpoint:
    """Return an endpoint that has not been checked yet."""
    return Endpoint(id, External(url, model, key_file), concurrency, time.time())


def external_of(row: dict[str, Any]) -> External | None:
    """Return the endpoint of a listed instance; None where that is a replica."""
    return External(row["url"], row["model"], row["key_file"] or "") if row.get("url") else None
