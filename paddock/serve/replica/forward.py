"""Way from the gateway to an engine on another machine: an agent forwards to its loopback, for those with its key.

A connection begins as HTTP's CONNECT (RFC 9110 §9.3.6) with the key as `Proxy-Authorization`; then bytes go both ways.
"""

from __future__ import annotations

import asyncio
import hmac
import threading
from contextlib import suppress

_HEAD_S, _CLOSE_S, _HEAD_BYTES, _PIECE = 10.0, 5.0, 8192, 1 << 16


class Forwarder:
    """Listener on an address that other machines reach. It forwards to one port of loopback, which may change."""

    def __init__(self, host: str, key: str) -> None:
        if len(key) < 32:
            raise ValueError("a forwarder listens with a key alone")
        self._host, self.key = host, key
        self.target = 0
        """Port of loopback; 0 while nothing listens there."""
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        ready = threading.Event()
        self._problem: OSError | None = None
        self._thread = threading.Thread(target=self._run, args=(ready,), name="forward", daemon=True)
        self._thread.start()
        ready.wait()
        if self._problem:
            raise self._problem

    def close(self) -> None:
        """Stop listening, and close what is open."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_CLOSE_S)

    def _run(self, ready: threading.Event) -> None:
        async def listen() -> None:
            try:
                server = await asyncio.start_server(self._serve, self._host, 0, limit=_HEAD_BYTES)
                host, port = server.sockets[0].getsockname()[:2]
                self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            except OSError as error:
                self._problem = error
                return
            finally:
                ready.set()
            await self._ended.wait()
            server.close()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # it cancels the connections that are open
            runner.run(listen())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, there = await self._admitted(reader)
            writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
            await writer.drain()
            if there:
                await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the other side sees its connection end
        finally:
            writer.close()

    async def _admitted(
        self, reader: asyncio.StreamReader
    ) -> tuple[str, tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        async with asyncio.timeout(_HEAD_S):
            request, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        shown = next((value for name, _, value in (field.partition(":") for field in fields)
                      if name.lower() == "proxy-authorization"), "")  # fmt: skip
        if not hmac.compare_digest(shown.strip().encode(), f"Bearer {self.key}".encode()):
            return "407 Proxy Authentication Required", None
        if not self.target or request.split(" ")[:2] != ["CONNECT", f"127.0.0.1:{self.target}"]:
            return "503 Service Unavailable", None
        try:
            return "200 Connection established", await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            return "503 Service Unavailable", None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy to the end of one side, which then ends the other: HTTP/1.1 has no use for half a connection."""
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    finally:
        with suppress(OSError):
            writer.close()
