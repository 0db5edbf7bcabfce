"""Gang of a model whose weights several devices share by tensor parallelism: one process a rank.

Rank 0 is the replica of Ray Serve. It decides who joins and leaves, tells the other ranks every step, takes its own
part in it, and answers. A step is the same on all: its sums join them.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Any

from paddock.serve.deployment.replica import Replica
from paddock.serve.deployment.workers import LOAD_S, START_S, Seat, Worker, Workers, load_rows
from paddock.serve.engine.rows import Rows
from paddock.serve.engine.sampling import Draws
from paddock.serve.errors import ServeError, first_line
from paddock.serve.own.protocol import Info, Spec

_SUMS_FAIL = (RuntimeError, OSError)


class GangReplica(Replica):
    """Replica whose model a gang holds; it is rank 0."""

    def __init__(self, spec: Spec, seats: Sequence[Seat], mode: str = "") -> None:
        self._seats, self._mode = seats, mode
        super().__init__(spec, mode, ranks=len(seats))

    def _load(self, spec: Spec) -> tuple[Info, Rows]:
        return load_gang(self._seats, spec, self._mode)


def load_gang(
    seats: Sequence[Seat], spec: Spec, mode: str = "", start_seconds: float = START_S
) -> tuple[Info, GangRows]:
    """Start all ranks, then load each one's part. Raises ServeError with the rank that did not."""
    workers = Workers(Rank, "rank", seats)
    workers.start(start_seconds)
    address, port = meeting_point()
    size = len(seats)
    joining = [
        actor.join.remote(rank, size, address, port, spec.device) for rank, actor in enumerate(workers.actors, 1)
    ]
    try:
        join(0, size, address, port, spec.device)
    except _SUMS_FAIL as error:
        workers.wait(joining, 0, "did not join the others")
        raise ServeError(f"the ranks did not meet at {address}:{port}: {first_line(error)}") from None
    workers.wait(joining, START_S, "did not join the others")
    loading = workers.call("load", spec, mode, size)
    info, rows = load_rows(spec)
    workers.wait(loading, LOAD_S, "did not load its part")
    workers.watch()
    return info, GangRows(rows, workers)


class GangRows:
    """Rows of a gang: every step is taken on all ranks at once. Raises RankLost, and no step comes after it."""

    def __init__(self, rows: Rows, workers: Workers) -> None:
        self._rows, self.workers = rows, workers
        self.slots = rows.slots

    def join(self, ids: Sequence[int], draws: Draws = ()) -> int | None:
        token: int | None = self._step("join", list(ids), draws)
        return token

    def decode(self, tokens: Sequence[int], draws: Draws = ()) -> Sequence[int | None]:
        # The tokens of rank 0 are those that all ranks go on with, so that it alone draws them.
        following: Sequence[int | None] = self._step("decode", list(tokens), draws)
        return following

    def leave(self, row: int) -> None:
        self._step("leave", row)

    def _step(self, name: str, argument: Any, *own: Any) -> Any:
        self.workers.check()
        self.workers.call("step", name, argument)
        try:
            return getattr(self._rows, name)(argument, *own)
        except Exception as error:
            raise self.workers.lost(f"{self.workers.name(0)} failed: {first_line(error)}") from None


class Rank(Worker):
    """One of the ranks from 1 up."""

    def join(self, rank: int, size: int, address: str, port: int, device: str) -> None:
        join(rank, size, address, port, device)


def join(rank: int, size: int, address: str, port: int, device: str) -> None:
    """Join the ranks that meet at an address, over the network that has this machine's own."""
    import ray

    from paddock.serve.own import parallel

    if interface := _interface(ray.util.get_node_ip_address()):
        os.environ |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": str(port)}
    parallel.join(device)


def meeting_point() -> tuple[str, int]:
    """Return this machine's address in the cluster, and a free port."""
    import ray

    address = str(ray.util.get_node_ip_address())
    with socket.socket() as probe:
        probe.bind((address, 0))
        return address, int(probe.getsockname()[1])


def _interface(address: str) -> str:
    """Return the network interface that has an address; empty where none has."""
    import psutil

    with contextlib.suppress(OSError):
        for name, rows in psutil.net_if_addrs().items():
            if any(row.address == address for row in rows):
                return str(name)
    return ""
