"""HTTP of the client, byte by byte."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib

import pytest

from paddock.openai import body
from paddock.openai.body import until_done
from paddock.openai.errors import ExchangeError
from paddock.openai.http import HttpClient

OK = b"HTTP/1.1 200 OK\r\n"


def exchange(*answers: bytes, scheme: str = "http") -> list[tuple[int, bytes]]:
    """Ask a server once for each answer; every connection ends after its first answer without a word."""

    async def ask() -> list[tuple[int, bytes]]:
        remaining = list(answers)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(65536)
            writer.write(remaining.pop(0))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = HttpClient(f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        result = []
        try:
            for _ in answers:
                response = await client.request("GET", "/")
                result.append((response.status, b"".join([piece async for piece in response.pieces])))
        finally:
            client.close()
            server.close()
        return result

    return asyncio.run(ask())


@pytest.mark.parametrize(("answer", "body"), [
    (OK + b"Content-Length: 3\r\n\r\nabc", b"abc"),
    (OK + b"\r\nuntil the end", b"until the end"),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nTrailer: 1\r\n\r\n", b"abc"),
    (OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"abc", mtime=0), b"abc"),
    (OK + b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(b"abc" * 99999), b"abc" * 99999),
    (OK + b"Content-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", b""),
])  # fmt: skip
def test_every_framing_of_a_body_is_read(answer: bytes, body: bytes) -> None:
    assert exchange(answer) == [(200, body)]


def test_a_kept_connection_that_closed_is_replaced() -> None:
    answer = OK + b"Content-Length: 2\r\n\r\n"
    assert exchange(answer + b"ab", answer + b"cd") == [(200, b"ab"), (200, b"cd")]


@pytest.mark.parametrize(("answer", "kind"), [
    (b"", "closed early"),
    (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "malformed"),
    (OK + b"Content-Length: 9\r\n\r\nabc", "closed early"),
    (OK + b"Content-Length: many\r\n\r\nabc", "malformed"),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", "closed early"),
    (OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nab", "malformed"),
    (OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"abc", mtime=0)[:-9], "closed early"),
    (OK + b"Content-Encoding: gzip\r\n\r\nabc", "malformed"),
    (OK + b"Content-Encoding: br\r\n\r\nabc", "malformed"),
])  # fmt: skip
def test_a_broken_answer_is_a_failure_of_its_kind(answer: bytes, kind: str) -> None:
    with pytest.raises(ExchangeError) as caught:
        exchange(answer)
    assert caught.value.failure.kind == kind


def test_a_server_without_tls_is_no_tls_server() -> None:
    with pytest.raises(ExchangeError) as caught:
        exchange(b"HTTP/1.1 400 Bad Request\r\n\r\n", scheme="https")
    assert caught.value.failure.kind == "TLS"


def test_closing_the_client_ends_an_answer_that_nobody_read() -> None:
    async def ask() -> bytes:
        ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + b"Content-Length: 3\r\n\r\nabc")
            ended.set_result(await reader.read())
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            assert (await client.request("GET", "/")).status == 200
            client.close()
            return await asyncio.wait_for(ended, 30)

    assert asyncio.run(ask()) == b""


async def kept(*pieces: bytes, end: bool) -> tuple[bytes, float]:
    """Return what is read of a body whose server keeps its connection, and the seconds that it took."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in (OK + b"\r\n", *pieces):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        if not end:
            await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            response = await client.request("GET", "/")
            begun = time.monotonic()
            read = b"".join([piece async for piece in until_done(response.pieces)])
            return read, time.monotonic() - begun
        finally:
            client.close()


@pytest.mark.parametrize("pieces", [
    (b"data: a\n\ndata: [DONE]\n\n",),
    (b"data: a\n\nda", b"ta: [DO", b"NE]", b"\n\n: bye\n\n"),
    (b"data: [DONE]",),
])  # fmt: skip
def test_a_body_that_is_kept_open_ends_with_done(pieces: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "REST_S", 0.2)
    read, seconds = asyncio.run(asyncio.wait_for(kept(*pieces, end=False), 30))
    assert read == b"".join(pieces)
    assert seconds < 20


def test_done_in_the_text_of_an_answer_ends_nothing() -> None:
    pieces = (b'data: {"text": "data: [DONE]"}\n\n', b"x" * 99, b"data: more\n\n")
    read, _ = asyncio.run(asyncio.wait_for(kept(*pieces, end=True), 30))
    assert read == b"".join(pieces)
