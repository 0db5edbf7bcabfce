"""Processes beside an instance's replica on the devices that share its model: one a device, in one placement group.

The replica is the first of them. One that ends or fails ends them all: the others would wait for it for ever. Ray Serve
then starts the instance again, or the scheduler places it anew where an agent has gone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paddock.modes.config import ResourceConfig
from paddock.modes.policy import Policy
from paddock.serve.agents.report import DEVICES
from paddock.serve.agents.visibility import device_variables
from paddock.serve.engine.lease import DeviceLease, lease_device, lease_share
from paddock.serve.engine.limits import Priority, admit_model, memory, resource_mode
from paddock.serve.engine.rows import Rows
from paddock.serve.errors import RankLost, ServeError, first_line
from paddock.serve.own.protocol import Spec
from paddock.serve.placement.device import Device

START_S = 120.0
"""Seconds in which all processes must be up."""
LOAD_S = 600.0
STEP_S = 600.0
"""Seconds in which a step must be done: the gateway waits no longer for a token."""
_REASON_S = 5.0
"""Seconds that Ray may need to notice a dead process, after a step with it has failed."""
_END_S = 3.0
"""Seconds in which the requests of a broken instance get the reason, before its process ends."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Place of a process: its device in words, the resources of its bundle, and what its process is started with."""

    device: str
    bundle: Mapping[str, float]
    variables: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    """GPUs that Ray hands to the process; none where the variables name one."""


def seats(devices: Sequence[Device]) -> tuple[Seat, ...]:
    """Return the seats of devices, each pinned to its agent."""
    return tuple(Seat(device.label, {f"agent:{device.agent}": 1}, device_variables(device)) for device in devices)


class Workers:
    """The processes from number 1 up, as actors of one class. `noun` is what messages call one: a rank, a stage."""

    def __init__(self, kind: type[Worker], noun: str, seats: Sequence[Seat]) -> None:
        self._kind, self._noun, self._seats = kind, noun, seats
        self.actors: list[Any] = []
        self._lost = ""
        self._known = threading.Event()

    def name(self, number: int) -> str:
        """Return a process in words; 0 is the replica's own."""
        return f"{self._noun} {number} on {self._seats[number].device}"

    def start(self, seconds: float = START_S) -> None:
        """Start all. Raises ServeError with the first that is not up in time."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group = ray.util.get_current_placement_group()
        actor = ray.remote(num_cpus=0, max_restarts=0, concurrency_groups={"watch": 1})(self._kind)
        self.actors = [
            actor.options(
                num_gpus=seat.gpus,
                runtime_env={"env_vars": dict(seat.variables)},
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number),
            ).remote()
            for number, seat in enumerate(self._seats)
            if number
        ]
        self.wait(self.call("ready"), seconds, "did not start")

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of all with the same arguments, and return their answers to come."""
        return [getattr(actor, method).remote(*arguments) for actor in self.actors]

    def wait(self, answers: Sequence[Any], seconds: float, failure: str) -> list[Any]:
        """Return the answers of all, in as many seconds. Raises ServeError with the first that failed or is late."""
        import ray

        deadline = time.monotonic() + seconds
        values = []
        for number, answer in enumerate(answers, 1):
            try:
                values.append(ray.get(answer, timeout=max(0.0, deadline - time.monotonic())))
            except ray.exceptions.GetTimeoutError:
                within = f" within {seconds:g} s" if seconds else ""
                raise ServeError(f"{self.name(number)} {failure}{within}") from None
            except ray.exceptions.RayTaskError as error:
                raise ServeError(f"{self.name(number)} {failure}: {first_line(error.cause)}") from None
            except ray.exceptions.RayError as error:
                raise ServeError(f"{self.name(number)} {failure}: {first_line(error)}") from None
        return values

    def watch(self) -> None:
        """Watch all from now on, in a thread: the first that ends or fails ends the instance."""
        threading.Thread(target=self._watch, daemon=True).start()

    def check(self) -> None:
        """Raise RankLost where one has ended or failed: no step is possible any more."""
        if self._lost:
            raise RankLost(self._lost)

    def lost(self, otherwise: str) -> RankLost:
        """Return why a step with all failed, and end the instance. `otherwise` is why where no other process failed."""
        # The others may wait in a sum that will not come, or one of them has gone.
        self._known.wait(_REASON_S)
        self._end(otherwise)
        return RankLost(self._lost)

    def _watch(self) -> None:
        import ray

        watched = {
            actor.watch.options(concurrency_group="watch").remote(): number
            for number, actor in enumerate(self.actors, 1)
        }
        (first, *_), _ = ray.wait(list(watched), num_returns=1)
        name = self.name(watched[first])
        try:
            self._end(f"{name} failed: {ray.get(first)}")
        except ray.exceptions.RayError:
            self._end(f"{name} has gone")

    def _end(self, reason: str) -> None:
        """Keep the reason, and end this process soon: Ray Serve starts the instance anew."""
        self._lost = self._lost or reason
        self._known.set()
        timer = threading.Timer(_END_S, os._exit, (1,))
        timer.daemon = True
        timer.start()


class Worker:
    """One of the processes from number 1 up: an actor on its device's agent, which follows the replica's steps."""

    def __init__(self) -> None:
        self._rows: Rows | None = None
        self._config: Callable[[], ResourceConfig] | None = None
        self._priority: Priority | None = None
        self._failure = ""
        self._failed = threading.Event()

    def ready(self) -> None:
        """Import the engine."""
        sleep_while_waiting()
        import paddock.serve.engine.torch_rows  # noqa: F401 - it takes seconds

    def load(self, spec: Spec, mode: str, ranks: int) -> int:
        """Load this process's part, and return its most rows. Raises ServeError, ServeError."""
        spec, policy = on_this_machine(spec), resource_mode(mode)
        take_device(spec, policy, ranks)  # until this process ends
        self._config, self._priority = policy.current(), Priority()
        self._priority.follow(self._config())
        _, self._rows = load_rows(spec)
        return self._rows.slots

    def step(self, name: str, *arguments: Any) -> Any:
        """Take part in a step, and return what it gives. A failure ends this process soon."""
        try:
            if self._priority and self._config:
                self._priority.follow(self._config())
            return getattr(self._rows, name)(*arguments)
        except Exception as error:
            self._failure = first_line(error)
            self._failed.set()
            threading.Timer(1, os._exit, (1,)).start()
            raise

    def watch(self) -> str:
        """Return why a step failed, once one has."""
        self._failed.wait()
        return self._failure


def sleep_while_waiting() -> None:
    """Let threads of torch sleep where they wait: those that spin slow down all beside them."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def on_this_machine(spec: Spec) -> Spec:
    """Return the spec for this process's device: in a rehearsal, of devices in a file, the processor computes."""
    return replace(spec, device="cpu") if os.environ.get(DEVICES) else spec


def take_device(spec: Spec, policy: Policy, ranks: int = 1) -> DeviceLease | None:
    """Lease the device or a mode's share of it, and check that the model's part fits there. Raises ServeError."""
    lease = lease_device(spec.device, lease_share(policy))
    if not os.environ.get(DEVICES):
        admit_model(spec, policy.current()(), memory(spec.device), ranks)
    return lease


def load_rows(spec: Spec) -> tuple[Any, Any]:
    """Load a model, or this process's part of it. Return what is known of it, and its rows."""
    from paddock.serve.engine.torch_rows import TorchRows
    from paddock.serve.own.torch_engine import TorchEngine

    engine = TorchEngine()
    info = engine.load(spec)
    return info, TorchRows(engine, spec.batch, spec.length)
