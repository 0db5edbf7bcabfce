"""Instance of a model: its placement, where it stands, and how that changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paddock.serve.deployment.row import InstanceRow, State
from paddock.serve.placement.device import Backend
from paddock.serve.placement.plan import Group, Infeasible, Plan
from paddock.serve.placement.reasons import summary
from paddock.serve.placement.request import Policy, Request

RETURN_S = 120.0
"""Seconds that the former agents of a model have to come back to a new head."""
RUNNING, FAILED, DELETING = "RUNNING", "DEPLOY_FAILED", "DELETING"
"""States of an application that change an instance: see `ray.serve.schema.ApplicationStatus`."""


@dataclass(frozen=True, slots=True)
class Application:
    """An application of Ray Serve: its status there, and why it is no better."""

    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """One declared model. Moments are seconds since the epoch. `moves` counts how often it was placed anew.

    `source` is the checkpoint's folder or file, and `seconds` are those in which a deployment must serve. `plan` is the
    last one, None before the first, and `first_backend` that of the first. `cause` is why it left its devices. Until
    `awaited_until` its former agents, `awaited`, may still come back. `failures` counts deployments that failed one
    after the other since it served.
    """

    id: str
    request: Request
    policy: Policy
    source: str
    seconds: float
    plan: Plan | None
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

    @property
    def application(self) -> str:
        return application_name(self.id)

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

    def row(self) -> InstanceRow:
        """Return what others know of it."""
        plan, group = self.plan, next(iter(self._groups), None)
        return InstanceRow(
            self.id,
            self.request.shape.name,
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
            engine="vllm" if self.policy.python else "paddock",
        )


def application_name(id: str) -> str:
    """Return the name of an instance's application of Ray Serve."""
    return f"model-{id}"


def declared(
    id: str, request: Request, policy: Policy, source: str, seconds: float, result: Plan | Infeasible, now: float
) -> Instance:
    """Return a new instance: one that loads, or waits for devices that hold it."""
    instance = Instance(id, request, policy, source, seconds, None, "pending", now, now + seconds)
    return placed(instance, result, now) if isinstance(result, Plan) else waiting(instance, result)


def placed(instance: Instance, plan: Plan, now: float) -> Instance:
    """Return the instance on the devices of a plan, where it begins to load."""
    return replace(
        instance,
        plan=plan,
        state="loading",
        reason="",
        first_backend=instance.first_backend or plan.backend,
        moves=instance.moves + (instance.plan is not None),
        deadline=now + instance.seconds,
    )


def waiting(instance: Instance, result: Infeasible) -> Instance:
    """Return an instance that nothing holds now, with what is lacking."""
    lacking = summary(result)
    return replace(instance, reason=f"{instance.cause}; {lacking}" if instance.cause else lacking)


def lost(instance: Instance, cause: str, now: float) -> Instance:
    """Return an instance that has left its devices, and waits for others."""
    return replace(instance, state="lost", reason=cause, cause=cause, lost_at=instance.lost_at or now)


def observed(instance: Instance, application: Application | None, now: float) -> Instance:
    """Return an instance that loads or serves, as Ray Serve's view of its application changes it."""
    status = application.status if application else ""
    if status == RUNNING:
        return instance if instance.state == "serving" else _serving(instance, now)
    if instance.state == "serving":
        why = "its replica has ended, and starts again"
        return replace(instance, state="loading", reason=why, lost_at=now, deadline=now + instance.seconds)
    why = application.reason if application else "Ray Serve does not say why"
    if status != FAILED:
        if now <= instance.deadline:
            return instance
        why = f"it was not loaded within {instance.seconds:g} s: {why}"
    if instance.lost_at is not None and not instance.failures:
        # It served here before: other devices may still hold it.
        return replace(lost(instance, why, now), failures=1)
    return replace(instance, state="failed", reason=why)


def declared_again(instance: Instance, now: float) -> Instance:
    """Return an instance of the scheduler before this one. Its former agents have some time to come back."""
    if instance.plan is None or instance.state == "failed":
        return instance
    awaited = instance.agents or instance.awaited
    again = lost(replace(instance, lost_at=None), "the head has started anew", now)
    return replace(again, failures=0, awaited=awaited, awaited_until=now + RETURN_S)


def adopted(instance: Instance, now: float) -> Instance:
    """Return an instance whose application outlived the scheduler before this one."""
    return replace(instance, state="loading", reason="", lost_at=None, deadline=now + instance.seconds)


def _serving(instance: Instance, now: float) -> Instance:
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
    )
