"""HTTP of the client, byte by byte, and what it makes of a refusal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from email.message import Message

import pytest

from paddock.bench.load.client.http import HttpClient, HttpFailure
from paddock.bench.load.client.messages import Exchange, Failure, Plan, Target
from paddock.bench.load.client.sender import LONGEST_PAUSE, REFUSAL_PAUSE, retry_after
from paddock.bench.load.workload import Lengths

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
])  # fmt: skip
def test_a_broken_answer_is_a_failure_of_its_kind(answer: bytes, kind: str) -> None:
    with pytest.raises(HttpFailure) as caught:
        exchange(answer)
    assert caught.value.failure.kind == kind


def test_a_server_without_tls_is_no_tls_server() -> None:
    with pytest.raises(HttpFailure) as caught:
        exchange(b"HTTP/1.1 400 Bad Request\r\n\r\n", scheme="https")
    assert caught.value.failure.kind == "TLS"


@pytest.mark.parametrize(("fields", "seconds"), [
    ({"Retry-After": "7"}, 7),
    ({"Retry-After": "86400"}, LONGEST_PAUSE),
    ({"Retry-After": "Mon, 23 Nov 2026 10:00:09 GMT", "Date": "Mon, 23 Nov 2026 10:00:00 GMT"}, 9),
    ({"Retry-After": "soon"}, REFUSAL_PAUSE),
    ({}, REFUSAL_PAUSE),
])  # fmt: skip
def test_a_refusal_says_how_long_to_wait(fields: dict[str, str], seconds: float) -> None:
    headers = Message()
    for name, value in fields.items():
        headers[name] = value
    assert retry_after(headers) == seconds


@pytest.mark.parametrize("pieces", [(), ((0.5, bytes(range(256))), (0.75, b"\r\n"))])
def test_messages_between_the_processes_lose_nothing(pieces: Sequence[tuple[float, bytes]]) -> None:
    sent = Exchange(3, 0.1, 0.2, 0.9, 8, True, 200, tuple(pieces), Failure("timeout", "why"))
    assert Exchange.from_json(json.loads(sent.line())) == sent
    plan = Plan(Target("http://x", "/v1", {"n": 1}, True), Lengths(1, 2), Lengths(3, 3), (0.5, 1.5), warm_up=1)
    assert Plan.from_line(plan.line()) == plan


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
