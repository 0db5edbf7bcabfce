"""HTTP server of the gateway: uvicorn in a thread of its own, or in the program's main one."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.serve.errors import ServeError, ServeInputError

if TYPE_CHECKING:
    import uvicorn

DRAIN_S = 25
"""Seconds that open answers have after the end was asked for."""
_START_S = 30.0
_BACKLOG = 2048


@dataclass(slots=True)
class Running:
    """Server that listens. `port` is the one that it has, also where 0 asked for any."""

    host: str
    port: int
    _server: uvicorn.Server
    _thread: threading.Thread

    def stop(self, seconds: float = DRAIN_S) -> None:
        """Listen no more, and wait for open answers for so long."""
        self._server.config.timeout_graceful_shutdown = max(1, int(seconds))
        self._server.should_exit = True
        self._thread.join(seconds + 5)

    @property
    def alive(self) -> bool:
        """Tell whether it still serves."""
        return self._thread.is_alive()


def start(app: Any, host: str, port: int) -> Running:
    """Serve an application in a thread of its own. Raises ServeInputError for an address that cannot be had."""
    bound = _bound(host, port)
    started = threading.Event()
    server = _server(app)

    class Main(threading.Thread):
        def run(self) -> None:
            try:
                server.run(sockets=[bound])
            finally:
                started.set()

    thread = Main(name="gateway", daemon=True)
    thread.start()
    for _ in range(int(_START_S / 0.01)):
        if server.started or started.wait(0.01):
            break
    if not server.started:
        raise ServeError(f"the gateway has not started within {_START_S:g} s; its log says why")
    return Running(host, bound.getsockname()[1], server, thread)


def serve(app: Any, host: str, port: int) -> None:
    """Serve an application until SIGTERM or Ctrl-C, and let open answers end. Raises ServeInputError."""
    _server(app).run(sockets=[_bound(host, port)])


def _server(app: Any) -> uvicorn.Server:
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app, lifespan="on", log_level="warning", access_log=False, server_header=False, ws="none",
            timeout_graceful_shutdown=DRAIN_S, timeout_keep_alive=75, backlog=_BACKLOG,
        )
    )  # fmt: skip


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ServeInputError(
            f"{host}:{port}: {error.strerror or error}\n    expected: a free port of an address of this machine"
            "\n    fix: choose another"
        ) from None
    bound.set_inheritable(False)
    return bound
