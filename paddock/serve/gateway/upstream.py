"""Servers behind the gateway: an engine's own HTTP on loopback, through an agent's on another machine, or by a URL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from paddock.openai.address import Address, parse_url
from paddock.openai.errors import ExchangeError
from paddock.openai.http import HttpClient, Proxy, Response
from paddock.serve.errors import ServeInputError

_CONNECT_S = 5.0
_address = lru_cache(maxsize=1024)(parse_url)


@dataclass(frozen=True, slots=True)
class Upstream:
    """Server that answers requests, and the name by which it knows its model.

    `key` is its API key, or `key_file` the file that holds one, which is read for every request. `through` is the
    HOST:PORT of an agent that joins to its own machine's loopback for `pass_key`; empty, the server is reached at once.
    """

    url: str
    model: str
    key: str = field(default="", repr=False)
    key_file: str = ""
    through: str = ""
    pass_key: str = field(default="", repr=False)

    def secret(self) -> str:
        """Return the API key of this moment, empty where it asks for none. Raises ServeInputError."""
        return key_of(self.key_file) if self.key_file else self.key

    @property
    def address(self) -> Address:
        return _address(self.url)

    def client(self) -> HttpClient:
        """Return a client with connections of its own."""
        proxy = Proxy(self.through, self.pass_key) if self.through else None
        return HttpClient(self.address.origin, proxy=proxy, seconds=_CONNECT_S)


class Connections:
    """Kept connections to servers, of one event loop."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str, str], HttpClient] = {}

    async def request(self, upstream: Upstream, path: str, body: bytes, key: str) -> Response:
        """Post a body to a server, and return the head of the answer. Raises ExchangeError."""
        origin = upstream.address.origin, upstream.through, upstream.pass_key
        client = self._clients.get(origin)
        if client is None:
            # In a thread where it speaks TLS: it reads the certificates of all authorities.
            made = upstream.client
            client = await asyncio.to_thread(made) if origin[0].startswith("https:") else made()
            client = self._clients.setdefault(origin, client)
        return await client.request("POST", upstream.address.prefix + path, body, key)

    def keep(self, upstreams: Iterable[Upstream]) -> None:
        """Close the connections to all others, save for those whose answers are still being read."""
        known = {(upstream.address.origin, upstream.through, upstream.pass_key) for upstream in upstreams}
        for origin in self._clients.keys() - known:
            self._clients.pop(origin).close_idle()

    async def close(self) -> None:
        """Close all connections."""
        clients = list(self._clients.values())
        self._clients.clear()
        await asyncio.gather(*(client.closed() for client in clients))


async def whole(response: Response, most: int) -> bytes:
    """Return the body of an answer. Raises ExchangeError for one of more than `most` bytes."""
    parts, size = [], 0
    async with aclosing(response.pieces) as pieces:  # type: ignore[type-var]  # it is a generator
        async for piece in pieces:
            parts.append(piece)
            size += len(piece)
            if size > most:
                raise ExchangeError("malformed", f"its answer is larger than {most} bytes")
    return b"".join(parts)


def key_of(file: str) -> str:
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
