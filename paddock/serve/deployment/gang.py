"""Gang of a model whose weights several devices share: one process a rank, all in one placement group.

Rank 0 is the replica of Ray Serve. It sends every step to the other ranks, takes its own part in it, and answers. A
rank that ends or fails ends the gang: its sums would wait for ever. Ray Serve then starts the gang again, or the
scheduler places the model anew where an agent has gone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.bench.engine.protocol import Engine, Info, Spec
from paddock.serve.agents.visibility import device_variables
from paddock.serve.deployment.replica import Replica
from paddock.serve.engine.rows import OneRow, Rows
from paddock.serve.errors import RankLost, ServeError
from paddock.serve.placement.device import Device

_START_S = 120.0
"""Seconds in which all ranks must be up."""
_LOAD_S = 600.0
_REASON_S = 5.0
"""Seconds that Ray may need to notice a dead rank, after a sum over it has failed."""
_END_S = 3.0
"""Seconds in which the requests of a broken gang are told why, before its process ends."""
_SUMS_FAIL = (RuntimeError, OSError)


@dataclass(frozen=True, slots=True)
class Seat:
    """Place of a rank: its agent, its device, and the variables of its process."""

    agent: str
    device: str
    variables: Mapping[str, str]

    @property
    def bundle(self) -> dict[str, float]:
        """Return the resources that pin it to its agent."""
        return {f"agent:{self.agent}": 1}


def seats(devices: Sequence[Device]) -> tuple[Seat, ...]:
    """Return the seats of a group's devices, rank 0 first."""
    return tuple(Seat(device.agent, device.label, device_variables(device)) for device in devices)


class GangReplica(Replica):
    """Replica whose engine is a gang; it is rank 0."""

    def __init__(self, spec: Spec, seats: Sequence[Seat], mode: str = "") -> None:
        self._seats = seats
        super().__init__(spec, mode, ranks=len(seats))

    def _new_engine(self) -> Engine:
        return Gang(self._seats, share=self._share)

    def _rows(self, engine: Any) -> Rows:
        return OneRow(engine)


class Gang:
    """Engine of rank 0: the four calls, on all ranks at once."""

    def __init__(self, seats: Sequence[Seat], start_seconds: float = _START_S, share: float | None = None) -> None:
        from paddock.bench.engine.torch_engine import TorchEngine

        self._seats, self._start_s, self._share = seats, start_seconds, share
        self._engine = TorchEngine()
        self._ranks: list[Any] = []
        self._lost = ""
        self._known = threading.Event()

    def load(self, spec: Spec) -> Info:
        """Start all ranks, then load each one's part. Raises ServeError with the rank that did not."""
        self._start()
        address, port = meeting_point()
        size = len(self._seats)
        joining = self._on_others("join", [(rank, size, address, port, spec.device) for rank in range(1, size)])
        try:
            join(0, size, address, port, spec.device)
        except _SUMS_FAIL as error:
            self._all(joining, 0, f"the ranks did not meet: {_first_line(error)}")
            raise ServeError(f"the ranks did not meet at {address}:{port}: {_first_line(error)}") from None
        self._all(joining, self._start_s, "did not join the others")
        loading = self._on_others("load", [(spec, self._share)] * (size - 1))
        info = self._engine.load(spec)
        self._all(loading, _LOAD_S, "did not load its part")
        threading.Thread(target=self._watch, daemon=True).start()
        return info

    def prefill(self, ids: Any) -> Any:
        return self._step("prefill", ids)

    def decode(self, token: Any) -> Any:
        return self._step("decode", token)

    def unload(self) -> None:
        """Give the memory back on every rank, and end the others."""
        import ray

        from paddock.bench.engine import parallel

        self._engine.unload()
        for rank in self._ranks:
            ray.kill(rank)
        parallel.leave()

    def _start(self) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group = ray.util.get_current_placement_group()
        rank = ray.remote(num_cpus=0, max_restarts=0, concurrency_groups={"watch": 1})(Rank)
        self._ranks = [
            rank.options(
                runtime_env={"env_vars": dict(seat.variables)},
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number),
            ).remote()
            for number, seat in enumerate(self._seats)
            if number
        ]
        self._all(self._on_others("ready", [()] * len(self._ranks)), self._start_s, "did not start")

    def _on_others(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [getattr(rank, method).remote(*values) for rank, values in zip(self._ranks, arguments, strict=True)]

    def _all(self, answers: Sequence[Any], seconds: float, failure: str) -> None:
        """Wait for the answers of ranks 1 and up. Raises ServeError with the first that failed or is late."""
        import ray

        deadline = time.monotonic() + seconds
        for number, answer in enumerate(answers, 1):
            name = f"rank {number} on {self._seats[number].device}"
            try:
                ray.get(answer, timeout=max(0.0, deadline - time.monotonic()))
            except ray.exceptions.GetTimeoutError:
                if seconds:
                    raise ServeError(f"{name} {failure} within {seconds:g} s") from None
            except ray.exceptions.RayTaskError as error:
                raise ServeError(f"{name} {failure}: {_first_line(error.cause)}") from None
            except ray.exceptions.RayError as error:
                raise ServeError(f"{name} {failure}: {_first_line(error)}") from None

    def _step(self, name: str, argument: Any) -> Any:
        """Take one step on all ranks. Raises RankLost; no step comes after it."""
        if self._lost:
            raise RankLost(self._lost)
        self._on_others("step", [(name, argument)] * len(self._ranks))
        try:
            return getattr(self._engine, name)(argument)
        except Exception as error:
            # The others wait in a sum that will not come, or one of them has gone: no further step is possible.
            self._known.wait(_REASON_S)
            self._end(f"rank 0 on {self._seats[0].device} failed: {_first_line(error)}")
            raise RankLost(self._lost) from None

    def _watch(self) -> None:
        """Wait until a rank ends or fails."""
        import ray

        watched = {
            rank.watch.options(concurrency_group="watch").remote(): number for number, rank in enumerate(self._ranks, 1)
        }
        (first, *_), _ = ray.wait(list(watched), num_returns=1)
        name = f"rank {watched[first]} on {self._seats[watched[first]].device}"
        try:
            self._end(f"{name} failed: {ray.get(first)}")
        except ray.exceptions.RayError:
            self._end(f"{name} has gone")

    def _end(self, reason: str) -> None:
        """Keep the reason, and end this process soon: Ray Serve starts the gang anew."""
        self._lost = self._lost or reason
        self._known.set()
        timer = threading.Timer(_END_S, os._exit, (1,))
        timer.daemon = True
        timer.start()


class Rank:
    """One of the ranks from 1 up: an actor on its device's agent, which follows rank 0."""

    def __init__(self) -> None:
        self._engine: Any = None
        self._failure = ""
        self._failed = threading.Event()

    def ready(self) -> None:
        """Import the engine."""
        from paddock.bench.engine.torch_engine import TorchEngine

        self._engine = TorchEngine()

    def join(self, rank: int, size: int, address: str, port: int, device: str) -> None:
        join(rank, size, address, port, device)

    def load(self, spec: Spec, share: float | None = None) -> None:
        from paddock.serve.engine.lease import lease_device

        lease_device(spec.device, share)  # until this process ends
        self._engine.load(spec)

    def step(self, name: str, argument: Any) -> None:
        """Take part in a step. A failure ends this process: the other ranks wait for its sum."""
        try:
            getattr(self._engine, name)(argument)
        except Exception as error:
            self._failure = _first_line(error)
            self._failed.set()
            threading.Timer(1, os._exit, (1,)).start()

    def watch(self) -> str:
        """Return why a step failed, once one has."""
        self._failed.wait()
        return self._failure


def join(rank: int, size: int, address: str, port: int, device: str) -> None:
    """Join the ranks that meet at an address, over the network that has this machine's own."""
    import ray

    from paddock.bench.engine import parallel

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


def _first_line(error: BaseException | None) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__) if error else "it does not say why"
