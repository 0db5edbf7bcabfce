"""An HTTPS server that stands in for an API server, and a proxy on the way to it."""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from paddock.lab.control_plane import certificates
from paddock.lab.control_plane.identity import Identity

Reply = Callable[[str, str], tuple[int, dict[str, Any]]]
"""Path and token of a request -> status and body."""


class TlsServer:
    """A server on loopback with the lab's kind of certificate: for 127.0.0.1, localhost and `kubernetes`."""

    def __init__(self, folder: Path, reply: Reply) -> None:
        self.identity: Identity = certificates.create(folder)
        self.tokens: list[str] = []
        """Of each request, in their order."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                outer.tokens.append(token)
                status, body = reply(self.path, token)
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.identity.certificate, self.identity.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Proxy:
    """An HTTP proxy that opens a tunnel to one port of this machine, whatever host it is asked for."""

    def __init__(self, port: int) -> None:
        self.asked: list[tuple[str, str]] = []
        """Target and credential of each tunnel."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                outer.asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
                with socket.create_connection(("127.0.0.1", port)) as server:
                    self.send_response(200)
                    self.end_headers()
                    _carry(self.connection, server)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


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
