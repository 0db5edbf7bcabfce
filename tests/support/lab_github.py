"""The lab's GitHub in this process, for as long as a test asks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from paddock.lab.github.server import Server


@contextmanager
def serving() -> Iterator[Server]:
    """Yield a server at a free port."""
    server = Server(0)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
