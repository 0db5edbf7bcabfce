"""An HTTPS server that stands in for an API server, and a proxy on the way to it."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.lab.control_plane import certificates
from paddock.lab.control_plane.identity import Identity
from tests.support.http_server import Handler, serving

Reply = Callable[[str, str], tuple[int, dict[str, Any]]]
"""Path and token of a request -> status and body."""


@dataclass
class TlsServer:
    """A server on loopback with the lab's kind of certificate: for 127.0.0.1, localhost and `kubernetes`."""

    identity: Identity
    tokens: list[str] = field(default_factory=list)
    """Of each request, in their order."""
    url: str = ""


@contextmanager
def serve(folder: Path, reply: Reply) -> Iterator[TlsServer]:
    server = TlsServer(certificates.create(folder))

    class Requests(Handler):
        def do_GET(self) -> None:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            server.tokens.append(token)
            self.send(*reply(self.path, token))

    with serving(Requests, server.identity) as server.url:
        yield server


@dataclass
class Proxy:
    """An HTTP proxy that opens a tunnel to one server of this machine, whatever host it is asked for."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    """Target and credential of each tunnel."""
    address: str = ""
    """Host and port."""


@contextmanager
def proxy_to(server: TlsServer) -> Iterator[Proxy]:
    proxy = Proxy()

    class Requests(Handler):
        def do_CONNECT(self) -> None:
            proxy.asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
            with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as tunnel:
                self.send_response(200)
                self.end_headers()
                _carry(self.connection, tunnel)

    with serving(Requests) as url:
        proxy.address = url.removeprefix("http://")
        yield proxy


def _carry(one: socket.socket, other: socket.socket) -> None:
    ends = {one: other, other: one}
    while True:
        ready, _, _ = select.select(list(ends), [], [], 5)
        for end in ready:
            try:
                data = end.recv(65536)
            except OSError:
                return
            if not data:
                return
            ends[end].sendall(data)
        if not ready:
            return
