"""HTTP/1.1 on asyncio's streams, for answers whose every piece is timed.

The standard library's own client blocks a thread an answer, and a thousand threads that wait for one interpreter would
be what is measured.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from urllib.parse import urlsplit

from paddock.openai.body import decoded
from paddock.openai.errors import ExchangeError, FailureKind

_HEAD_LIMIT = 1 << 18
_PIECE = 1 << 16
_MOST_HEADERS = 100
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Response:
    """Head of an answer; `pieces` is its body."""

    status: int
    headers: Message
    pieces: AsyncIterator[bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Proxy:
    """Program at `address` (HOST:PORT) that joins a client of this key to an origin, by HTTP's CONNECT."""

    address: str
    key: str = field(repr=False)


class HttpClient:
    """Client of one origin. Connections are kept and used again; each must be established within `seconds`, if given.

    `proxy` is for an origin without TLS.
    """

    def __init__(
        self, origin: str, headers: Mapping[str, str] | None = None, *, verify: bool = True,
        proxy: Proxy | None = None, seconds: float | None = None,
    ) -> None:  # fmt: skip
        parts = urlsplit(origin)
        self._host = parts.hostname or ""
        self._tls = tls_context(verify) if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._proxy, self._seconds = proxy, seconds
        fields = {"Host": parts.netloc.rpartition("@")[2], "Accept-Encoding": "identity", **(headers or {})}
        self._fields = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._idle: list[_Streams] = []
        self._keep = True
        self._open: set[asyncio.StreamWriter] = set()

    async def request(self, method: str, path: str, body: bytes = b"", key: str = "") -> Response:
        """Send a request, with a bearer's key, and return the head of its answer. Raises ExchangeError.

        It is a NotSentError where no connection stood.
        A kept connection that turns out to be closed is replaced once, as RFC 9112 §9.3.1 lets a client do.
        """
        content = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        content += f"Authorization: Bearer {key}\r\n" if key else ""
        message = f"{method} {path} HTTP/1.1\r\n{self._fields}{content}\r\n".encode("latin-1") + body
        while self._idle:
            streams = self._idle.pop()
            if not streams[0].at_eof():
                try:
                    return await self._exchange(streams, message)
                except _NothingCame:
                    break
            self._drop(streams[1])
        try:
            return await self._exchange(await self._connect(), message)
        except _NothingCame:
            raise ExchangeError("closed early", "the connection was closed before an answer began") from None

    def close_idle(self) -> None:
        """Close the connections that answer nothing now, and keep none from now on."""
        self._keep = False
        while self._idle:
            self._drop(self._idle.pop()[1])

    def close(self) -> None:
        """Close all connections, also that of an answer whose body nobody read."""
        for writer in list(self._open):
            self._drop(writer)
        self._idle.clear()

    async def closed(self) -> None:
        """Close all connections, and wait until they are."""
        writers = list(self._open)
        self.close()
        for writer in writers:
            with suppress(OSError):
                await writer.wait_closed()

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.close()

    async def _connect(self) -> _Streams:
        host, port = self._host, self._port
        if self._proxy:
            host, _, number = self._proxy.address.rpartition(":")
            host, port = host.strip("[]"), int(number)
        try:
            async with asyncio.timeout(self._seconds):
                streams = await asyncio.open_connection(host, port, ssl=self._tls, limit=_HEAD_LIMIT)
                self._open.add(streams[1])
                if self._proxy:
                    await self._join(streams, self._proxy)
        except TimeoutError:
            raise NotSentError("timeout", f"cannot connect to {host}:{port} within {self._seconds:g} s") from None
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            raise NotSentError("TLS", f"no TLS connection to {host}:{port}: {reason}") from None
        except OSError as error:
            reason = error.strerror or str(error)
            kind: FailureKind = "client" if error.errno in _OWN_LIMITS else "connection refused"
            raise NotSentError(kind, f"cannot connect to {host}:{port}: {reason}") from None
        return streams

    async def _join(self, streams: _Streams, proxy: Proxy) -> None:
        """Have a proxy join the connection to the origin (RFC 9110 §9.3.6)."""
        reader, writer = streams
        target = f"{self._host}:{self._port}"
        joined, why = False, "it closed the connection"
        try:
            head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Bearer {proxy.key}\r\n\r\n"
            writer.write(head.encode("latin-1"))
            status, _ = await _head(reader)
            joined, why = status == 200, f"HTTP {status}"
        except _NothingCame:
            pass
        finally:
            if not joined:
                self._drop(writer)
        if not joined:
            raise NotSentError("connection refused", f"{proxy.address} does not join to {target}: {why}")

    async def _exchange(self, streams: _Streams, message: bytes) -> Response:
        reader, writer = streams
        try:
            try:
                writer.write(message)
                await writer.drain()
            except OSError:
                raise _NothingCame from None
            status, headers = await _head(reader)
            while 100 <= status < 200:
                status, headers = await _head(reader)
        except BaseException:
            self._drop(writer)
            raise
        return Response(status, headers, self._body(streams, status, headers))

    async def _body(self, streams: _Streams, status: int, headers: Message) -> AsyncIterator[bytes]:
        reader, writer = streams
        keep = False
        try:
            pieces, encoding = _pieces(reader, status, headers), headers.get("Content-Encoding", "").strip().lower()
            async for piece in pieces if encoding in ("", "identity") else decoded(pieces, encoding):
                yield piece
            framed = "Transfer-Encoding" in headers or "Content-Length" in headers or status in (204, 304)
            keep = framed and headers.get("Connection", "").lower() != "close"
        except asyncio.IncompleteReadError:
            raise ExchangeError("closed early", "the connection was closed in the middle of the answer") from None
        except (ConnectionError, ssl.SSLError) as error:
            raise ExchangeError("closed early", f"the connection broke: {error}") from None
        except (ValueError, asyncio.LimitOverrunError) as error:
            raise ExchangeError("malformed", f"the body is not HTTP: {error}") from None
        finally:
            if keep and self._keep:
                self._idle.append(streams)
            else:
                self._drop(writer)


class NotSentError(ExchangeError):
    """No connection stood, so that nothing of the request was sent."""


class _NothingCame(Exception):
    """Connection closed before the first byte of an answer."""


_OWN_LIMITS = (23, 24, 99)
"""ENFILE, EMFILE and EADDRNOTAVAIL: this machine has no more files or ports to give."""


def tls_context(verify: bool) -> ssl.SSLContext:
    """Return the system's trust in certificates, or none that asks for them."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _head(reader: asyncio.StreamReader) -> tuple[int, Message]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise _NothingCame from None
        raise ExchangeError("malformed", f"no HTTP answer but {error.partial[:60]!r}") from None
    except asyncio.LimitOverrunError:
        raise ExchangeError("malformed", "no HTTP answer: its head does not end") from None
    except OSError:
        raise _NothingCame from None
    line, _, fields = head.partition(b"\r\n")
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ExchangeError("malformed", f"no HTTP answer but {line[:60]!r}")
    headers = Message()
    for field_line in fields.decode("latin-1").split("\r\n")[:-2]:
        name, colon, value = field_line.partition(":")
        if not colon or len(headers) > _MOST_HEADERS:
            raise ExchangeError("malformed", f"the answer's head is not HTTP: {field_line[:60]!r}")
        headers[name.strip()] = value.strip()
    return int(words[1]), headers


async def _pieces(reader: asyncio.StreamReader, status: int, headers: Message) -> AsyncIterator[bytes]:
    if status in (204, 304):
        return
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        async for piece in _chunks(reader):
            yield piece
    elif "Content-Length" in headers:
        async for piece in _exactly(reader, int(headers["Content-Length"])):
            yield piece
    else:
        while piece := await reader.read(_PIECE):
            yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the content of a chunked body (RFC 9112 §7.1)."""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        async for piece in _exactly(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError("a chunk is longer than it says")
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailer fields


async def _exactly(reader: asyncio.StreamReader, count: int) -> AsyncIterator[bytes]:
    while count > 0:
        piece = await reader.read(min(count, _PIECE))
        if not piece:
            raise asyncio.IncompleteReadError(b"", count)
        count -= len(piece)
        yield piece
