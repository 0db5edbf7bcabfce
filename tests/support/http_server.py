"""A server for processes that may be gone before they read their answer."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """A server on a free port, silent about clients that have left."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what is not the client's leaving."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
