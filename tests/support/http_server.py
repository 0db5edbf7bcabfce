"""Servers for processes that may be gone before they read their answer."""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from paddock.lab.control_plane.identity import Identity


class Server(ThreadingHTTPServer):
    """A server that is silent about clients that have left."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what is not the client's leaving."""
        if not isinstance(sys.exc_info()[1], ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Requests that nobody logs."""

    def body(self) -> bytes:
        """Read what was sent."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def send(self, status: int, answer: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole answer: text and bytes as they are, anything else as JSON."""
        text = answer if isinstance(answer, str | bytes) else json.dumps(answer)
        body = text.encode() if isinstance(text, str) else text
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], identity: Identity | None = None) -> Iterator[str]:
    """Serve on a free port, over TLS with an identity; yield the address."""
    server = Server(("127.0.0.1", 0), handler)
    if identity:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.certificate, identity.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"{'https' if identity else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
