"""Scripted endpoint: a real HTTP server whose every byte and pause is written down."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODELS = {"object": "list", "data": [{"id": "scripted"}]}


@dataclass(frozen=True)
class Reply:
    """Answer to one request: steps are seconds to wait and bytes to send; `cut` closes before the body's end."""

    steps: Sequence[tuple[float, bytes]] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


def event(document: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def stream(new: int, *, first: float = 0.0, gap: float = 0.0, per_chunk: int = 1, ids: bool = True) -> Reply:
    """Return a completion of `new` tokens: the first chunk after `first` seconds, each further one after `gap`."""
    steps: list[tuple[float, bytes]] = []
    for start in range(0, new, per_chunk):
        tokens = list(range(start, min(start + per_chunk, new)))
        choice = {"text": " word" * len(tokens), "finish_reason": None} | ({"token_ids": tokens} if ids else {})
        steps.append((gap if start else first, event({"choices": [choice]})))
    end = event({"choices": [{"text": "", "finish_reason": "length"}]})
    usage = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": new}})
    return Reply([*steps, (0, end + usage + b"data: [DONE]\n\n")])


Script = Callable[[int, Mapping[str, Any]], Reply]


class ScriptedServer:
    """Running endpoint; `bodies` are the requests that it got, the first of them the probe."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.keys: list[str | None] = []
        self._script = script
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        if tls:
            # The handshake is the handler's: in the listener it would let one client block all others.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
            self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a refused handshake

    @contextmanager
    def running(self) -> Iterator[ScriptedServer]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _reply(self, body: Mapping[str, Any], key: str | None) -> Reply:
        with self._lock:
            number = len(self.bodies)
            self.bodies.append(body)
            self.keys.append(key)
        return self._script(number, body)

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a small chunk waits 40 ms for an acknowledgement

            def do_GET(self) -> None:
                self._whole(json.dumps(MODELS).encode())

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                reply = server._reply(body, self.headers.get("Authorization"))
                if reply.status != 200:
                    self._whole(b"".join(data for _, data in reply.steps), reply.status, reply.headers)
                    return
                try:
                    self._stream(reply)
                except OSError:
                    self.close_connection = True  # the client has gone

            def _stream(self, reply: Reply) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for wait, data in reply.steps:
                    time.sleep(wait)
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                    self.wfile.flush()
                if reply.cut:
                    self.close_connection = True
                else:
                    self.wfile.write(b"0\r\n\r\n")

            def _whole(self, data: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
                self.send_response(status)
                for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Keep the tests' output clean."""

        return Handler
