"""Turns of two benchmarks on one machine: while one measures a run, the other waits.

What the machine does at that moment then meets both, and drops out of the ratio of their runs. They meet at a port of
this machine: the first to come listens there. A turn is a byte that each sends to the other, and one that ends closes
the connection, however it ends.
"""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from paddock.bench.errors import BenchError

MEETS_WITHIN = 240.0
"""Seconds for the other benchmark to load its model and to come."""
_MAX_GREETING = 4096


class Alternation:
    """Turns with the benchmark that comes to the same port.

    `work` is what both have to measure, as JSON holds it. `waits` is called where the other is not there yet.
    """

    def __init__(
        self,
        port: int,
        work: Mapping[str, Any],
        *,
        meets_within: float = MEETS_WITHIN,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        self._port, self._work, self._meets_within, self._waits = port, work, meets_within, waits
        self._peer: socket.socket | None = None
        self._mine = False
        self._failure: BenchError | None = None
        self.alone = False
        """The other benchmark has ended, so that what follows is not in turn."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for this benchmark's turn, and give the other its own at the end.

        Raises BenchError where none comes, or where it measures something else.
        """
        if self._failure:
            raise self._failure  # the next job would wait as long
        if self._peer is None:
            try:
                self._peer, self._mine = self._meet()
            except BenchError as error:
                self._failure = error
                raise
        if not self._mine:
            self.alone = self.alone or not _received(self._peer)
        try:
            yield
        finally:
            self._mine = False
            with suppress(OSError):
                self._peer.send(b".")

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()

    def _meet(self) -> tuple[socket.socket, bool]:
        """Return the connection to the other benchmark, and whether this one came first and so has the first turn."""
        ends = time.monotonic() + self._meets_within
        while (left := ends - time.monotonic()) > 0:
            with suppress(ConnectionRefusedError), socket.socket() as here:
                here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    here.bind(("127.0.0.1", self._port))
                    here.listen(1)  # two may bind one port while neither listens
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise BenchError(f"--in-turn {self._port}: {error.strerror}") from None
                    peer = socket.create_connection(("127.0.0.1", self._port), left)
                    return self._greeted(peer, left), False
                here.settimeout(left)
                self._waits()
                with suppress(TimeoutError):
                    return self._greeted(here.accept()[0], left), True
            time.sleep(0.05)
        raise BenchError(
            f"--in-turn {self._port}: no other benchmark came within {self._meets_within:g} s\n"
            f"    fix: start the other build's benchmark at the same time, also with --in-turn {self._port}"
        )

    def _greeted(self, peer: socket.socket, seconds: float) -> socket.socket:
        """Return the connection, once both have said what they measure."""
        peer.settimeout(seconds)
        try:
            peer.sendall(json.dumps(self._work).encode() + b"\n")
            with peer.makefile("rb", buffering=0) as lines:
                theirs = json.loads(lines.readline(_MAX_GREETING))
        except (OSError, ValueError):
            peer.close()
            raise BenchError(
                f"--in-turn {self._port}: another program answers there\n    fix: choose a port that nothing uses"
            ) from None
        if theirs != self._work:
            peer.close()
            raise BenchError(
                f"--in-turn {self._port}: the other benchmark measures something else:"
                f" {', '.join(_different(self._work, theirs))}\n    fix: give both the same flags"
            )
        peer.settimeout(None)
        return peer


def _received(peer: socket.socket) -> bool:
    """Return whether the other gave the turn; it has ended otherwise."""
    try:
        return peer.recv(1) != b""
    except OSError:
        return False


def _different(ours: Mapping[str, Any], theirs: Any) -> Iterator[str]:
    other = theirs if isinstance(theirs, Mapping) else {}
    for name, value in ours.items():
        if other.get(name) != value:
            yield f"{name} {value} here, {other.get(name)} there"
