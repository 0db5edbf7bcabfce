"""Instance of a model: its placement, its state, and how that changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from paddock.serve.deployment.row import InstanceRow, State
from paddock.serve.gateway.upstream import Upstream
from paddock.serve.placement.device import Backend
from paddock.serve.placement.engines import engine_of
from paddock.serve.placement.plan import Group, Infeasible, ModelPlacement
from paddock.serve.placement.reasons import summary
from paddock.serve.placement.request import Policy, Request
from paddock.serve.replica.status import Status

PREFIX = "replica-"
"""Beginning of the names of the replicas' actors."""

RETURN_S = 120.0
"""Seconds that the former agents of a model have to come back to a new head."""
_START_S = 120.0
"""Seconds in which a replica's process must have begun."""
_STEADY_S = 60.0
"""Seconds of serving after which earlier ends no longer count."""
_MOST_ENDS = 3
"""Ends of a replica's process, one after the other, after which the instance leaves its devices."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One declared model. Moments are seconds since the epoch. `moves` counts how often it was placed again.

    `source` is the checkpoint's folder or file, and `seconds` are those in which a deployment must serve. `plan` is the
    last one, None before the first, and `first_backend` that of the first. `cause` is why it left its devices. Until
    `awaited_until` its former agents, `awaited`, may still come back. `failures` counts deployments that failed one
    after the other since it served, and `ends` the replica's processes that ended so; `served_at` is when it last began
    to serve. `generation` numbers its replicas, and `status` is what the last one said. It was placed at `placed_at`,
    and its replica's process had begun at `begun_at`.
    """

    id: str
    request: Request
    policy: Policy
    source: str
    seconds: float
    plan: ModelPlacement | None
    state: State
    since: float
    deadline: float
    reason: str = ""
    cause: str = ""
    first_backend: Backend | None = None
    moves: int = 0
    failures: int = 0
    recovered_seconds: float | None = None
    lost_at: float | None = None
    awaited: frozenset[str] = frozenset()
    awaited_until: float = 0.0
    ends: int = 0
    served_at: float = 0.0
    generation: int = 0
    status: Status | None = None
    placed_at: float = 0.0
    begun_at: float = 0.0

    @property
    def actor(self) -> str:
        """Return the name of its replica's actor."""
        return f"{PREFIX}{self.id}.{self.generation}"

    @property
    def deployed(self) -> bool:
        """Return whether its devices are its own: a replica is on them, or starts or ends there."""
        return self.state in ("loading", "serving", "unloading")

    @property
    def agents(self) -> frozenset[str]:
        return frozenset(placed.device.agent for group in self._groups for placed in group.devices)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(placed.device.label for group in self._groups for placed in group.devices)

    @property
    def _groups(self) -> tuple[Group, ...]:
        return self.plan.groups if self.plan else ()

    def document(self) -> dict[str, Any]:
        """Return what others know of it, as JSON types."""
        plan, group, status = self.plan, next(iter(self._groups), None), self.status
        return InstanceRow(
            self.id,
            self.request.model.name,
            self.state,
            self.reason or None,
            plan.kind if plan else None,
            plan.backend if plan else None,
            group.dtype if group else self.request.dtype,
            self.request.context,
            self.request.concurrency,
            self.since,
            group.degree if group else None,
            self.devices,
            self.moves,
            self.recovered_seconds,
            engine=engine_of(self.request.model, self.policy),
            engine_version=status.version or None if status else None,
            mode=self.policy.mode,
            paced=bool(status and status.paced),
            throttle=status.throttle if status else None,
            notes=status.notes if status else (),
            engine_metrics=dict(status.metrics) if status and status.metrics else None,
            recovery=self._recovery(),
            lease=status.lease if status else None,
            load_seconds=status.load_seconds if status else None,
        ).document()

    def _recovery(self) -> dict[str, float] | None:
        """Return the parts of the last recovery in seconds: until it was placed, its process began, it served."""
        if self.recovered_seconds is None:
            return None
        lost_at = self.served_at - self.recovered_seconds
        moments = {"placed": self.placed_at, "begun": self.begun_at, "served": self.served_at}
        return {name: round(max(0.0, moment - lost_at), 1) for name, moment in moments.items()}

    def upstream(self) -> Upstream | None:
        """Return the way to its server; None while that does not serve."""
        status = self.status
        if self.state != "serving" or not status or not status.port:
            return None
        url = f"http://127.0.0.1:{status.port}"
        return Upstream(url, self.id, key=status.key, through=status.through, pass_key=status.pass_key)


def declared(
    id: str,
    request: Request,
    policy: Policy,
    source: str,
    seconds: float,
    result: ModelPlacement | Infeasible,
    now: float,
) -> Instance:
    """Return a new instance: one that loads, or waits for devices that hold it."""
    instance = Instance(id, request, policy, source, seconds, None, "pending", now, now + seconds)
    return placed(instance, result, now) if isinstance(result, ModelPlacement) else waiting(instance, result)


def placed(instance: Instance, plan: ModelPlacement, now: float) -> Instance:
    """Return the instance on the devices of a plan, where it begins to load."""
    return replace(
        instance,
        plan=plan,
        state="loading",
        reason="",
        first_backend=instance.first_backend or plan.backend,
        moves=instance.moves + (instance.plan is not None),
        deadline=now + _START_S,
        ends=0,
        generation=instance.generation + 1,
        status=None,
        placed_at=now,
        awaited=frozenset(),
    )


def waiting(instance: Instance, result: Infeasible) -> Instance:
    """Return an instance that nothing holds now, with what is lacking."""
    lacking = summary(result)
    return replace(instance, reason=f"{instance.cause}; {lacking}" if instance.cause else lacking)


def lost(instance: Instance, cause: str, now: float) -> Instance:
    """Return an instance that has left its devices, and waits for others."""
    return replace(instance, state="lost", reason=cause, cause=cause, lost_at=instance.lost_at or now, status=None)


def observed(instance: Instance, status: Status | None, gone: str, now: float) -> Instance:
    """Return an instance that loads or serves, as its replica's status changes it; `gone` is how its process ended."""
    if gone:
        ends = 1 if instance.served_at and now - instance.served_at > _STEADY_S else instance.ends + 1
        if ends >= _MOST_ENDS or not instance.served_at:
            return _without(instance, gone, now)
        return replace(
            instance, state="loading", reason=f"its replica has ended ({gone}), and starts again", status=None,
            ends=ends, generation=instance.generation + 1, lost_at=instance.lost_at or now,
            deadline=now + _START_S, placed_at=now,
        )  # fmt: skip
    if status is not None and instance.status is None:
        instance = replace(instance, begun_at=now)
    if status is None:
        if now <= instance.deadline:
            return instance
        return _without(instance, f"its replica's process has not started within {_START_S:g} s", now)
    if status.state == "failed":
        return _without(instance, status.reason, now)
    if status.state == "serving":
        return _serving(instance, status, now) if instance.state != "serving" else replace(instance, status=status)
    lost_at = instance.lost_at or (now if instance.state == "serving" else None)
    return replace(instance, state="loading", reason=status.reason, status=status, lost_at=lost_at)


def _without(instance: Instance, why: str, now: float) -> Instance:
    """Return an instance whose replica does not serve: it has failed, or other devices may hold it."""
    if instance.served_at and not instance.failures:
        return replace(lost(instance, why, now), failures=1)
    return replace(instance, state="failed", reason=why)


def declared_again(instance: Instance, now: float) -> Instance:
    """Return an instance of the scheduler before this one. Its former agents have some time to come back."""
    if instance.plan is None or instance.state == "failed":
        return instance
    awaited = instance.agents or instance.awaited
    again = lost(replace(instance, lost_at=None), "the head has restarted", now)
    return replace(again, failures=0, awaited=awaited, awaited_until=now + RETURN_S)


def adopted(instance: Instance, now: float) -> Instance:
    """Return an instance whose replica outlived the scheduler before this one."""
    return replace(instance, state="loading", reason="", lost_at=None, deadline=now + _START_S, awaited=frozenset())


def _serving(instance: Instance, status: Status, now: float) -> Instance:
    recovered = instance.recovered_seconds if instance.lost_at is None else round(now - instance.lost_at, 1)
    backend = instance.plan.backend if instance.plan else None
    moved = instance.first_backend is not None and backend != instance.first_backend
    return replace(
        instance,
        state="serving",
        reason=f"it ran on {instance.first_backend} before; unload and load it to go back" if moved else "",
        cause="",
        failures=0,
        recovered_seconds=recovered,
        lost_at=None,
        served_at=now,
        status=status,
    )
