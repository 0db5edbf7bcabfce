"""Bodies: compressed ones, those that a server does not end, and those that hold something else than a stream."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from paddock.openai.errors import ExchangeError, reported, short

HEAD = 1 << 16
"""Bytes of a body's beginning from which `misread` tells what it is."""
REST_S = 0.5
"""Seconds in which a body ends after `[DONE]`; then its connection is used again."""
MOST_BYTES = 64 << 20
"""Memory of an answer that is kept as it came."""
_PIECE = 1 << 16
_PIECE_COST = 128
"""Bytes that a piece takes besides its content."""
_TAIL = 16
"""Bytes of a piece that may hold the beginning of `[DONE]`'s line."""
_DONE = re.compile(rb"[\r\n]data: {0,3}\[DONE\]")
_GZIP = b"\x1f\x8b"


async def decoded(pieces: AsyncIterator[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    """Yield a body without its Content-Encoding, in pieces of at most 64 KiB.

    Raises ExchangeError for an encoding other than gzip and deflate, none of which was asked for.
    """
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        raise ExchangeError("malformed", f"the body is encoded with {short(encoding)!r}, which was not asked for")
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)  # by its head either of the two
    async for piece in pieces:
        while piece and not stream.eof:
            try:
                part = stream.decompress(piece, _PIECE)
            except zlib.error:
                raise ExchangeError("malformed", f"the body is not {encoding}, as its head says") from None
            if part:
                yield part
            piece = stream.unconsumed_tail
    if rest := stream.flush():
        yield rest
    if not stream.eof:
        raise ExchangeError("closed early", f"the {encoding} body is cut off")


async def until_done(pieces: AsyncIterator[bytes], most: int | None = None) -> AsyncGenerator[bytes, None]:
    """Yield a body to its end; where that does not come within half a second of `[DONE]`, to there.

    A server may keep its connection without saying where the body ends, or close it before it does. Raises
    ExchangeError for a body that breaks off before `[DONE]`, or takes more than `most` bytes of memory.
    """
    size = 0
    async with aclosing(pieces) as body:  # type: ignore[type-var]  # it is a generator
        tail = b"\n"
        async for piece in body:
            size += len(piece) + _PIECE_COST
            if most is not None and size > most:
                raise ExchangeError("malformed", f"its answer is larger than {most >> 20} MiB")
            yield piece
            tail += piece
            if _DONE.search(tail):
                break
            tail = tail[-_TAIL:]
        else:
            return
        deadline = asyncio.get_running_loop().time() + REST_S
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    piece = await anext(body)
            except (StopAsyncIteration, TimeoutError, ExchangeError):
                return
            yield piece


def misread(head: bytes) -> ExchangeError:
    """Return what a body is that is not a stream, by its beginning."""
    text = head.decode(errors="replace").removeprefix("\ufeff").lstrip()
    if not text:
        return ExchangeError("malformed", "an answer without a token: nothing")
    if head.startswith(_GZIP):
        return ExchangeError("malformed", "the body is compressed with gzip, and its head does not say so")
    if text.startswith("<"):
        return ExchangeError("malformed", f"a page of HTML, not a stream: {short(text)}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ExchangeError("malformed", f"an answer without a token: {short(text)}")
    if isinstance(document, dict):
        if words := reported(document):
            return ExchangeError("server error", f"the server reports an error: {words}")
        if document.get("choices"):
            return ExchangeError("malformed", f"one whole answer, and a stream was asked for: {short(text)}")
    return ExchangeError("malformed", f"JSON that is not a streamed answer: {short(text)}")


def is_hopeless(head: bytes) -> bool:
    """Tell whether a body's beginning shows already that no stream follows."""
    return head.startswith(_GZIP) or head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"
