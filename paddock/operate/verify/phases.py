"""Cold start of a job, part by part, from what GitHub, Kubernetes and AWS recorded of it. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from paddock.catalog.nodes import cold_start
from paddock.fleet import Fleet
from paddock.fleet.model.pool import Bottlerocket, GpuPool
from paddock.operate.snapshot.model import Object, happened, moment
from paddock.operate.verify.report import ColdPart
from paddock.operate.why.links.evidence import condition, containers

BUDGETS: Mapping[str, float] = MappingProxyType(
    {
        "queued": 60.0,
        "assigned": 60.0,
        "pod": 60.0,
        "node claimed": 60.0,
        "instance running": 120.0,
        "kubelet ready": 240.0,
        "GPU allocatable": 180.0,
        "scheduled": 30.0,
        "image pulled": 600.0,
        "runner online": 60.0,
        "first step": 60.0,
    }
)
"""Seconds that each part may take, where no published figure is higher: choices of ours, not measurements."""
_SLACK = 2.0
"""A part may take so many times the highest published figure."""
_OF_NODE = ("node claimed", "instance running", "kubelet ready", "GPU allocatable")
_SAME = "with the GPU"
_WARM = "the node was there"
_UNRECORDED = "not recorded"


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Records of one way to a first step. Without `job` it is that of a pod that no workflow asked for."""

    pod: Object | None
    node: Object | None = None
    events: Sequence[Object] = ()
    """Of the pod."""
    activities: Sequence[Object] = ()
    """Of Auto Scaling."""
    runner: Object | None = None
    """EphemeralRunner."""
    run: Mapping[str, Any] | None = None
    job: Mapping[str, Any] | None = None
    """Workflow run and job, as GitHub's REST API has them."""


def budgets(fleet: Fleet, pool: GpuPool) -> dict[str, float]:
    """Return the seconds that each part may take on a pool's operating system."""
    system = "bottlerocket" if isinstance(fleet.ami(pool), Bottlerocket) else "al2023"
    highest = {part.key: part.high * _SLACK for part in cold_start(system)}
    published = {
        "assigned": highest["assign"],
        "kubelet ready": highest["node"],
        "GPU allocatable": highest["plugin"],
        "image pulled": highest["pull"],
    }
    return {name: max(seconds, published.get(name, 0.0)) for name, seconds in BUDGETS.items()}


def phases(record: ColdStart, limits: Mapping[str, float]) -> tuple[ColdPart, ...]:
    """Return the parts to the first step, each from the end of the one before. A warm node has none of its own.

    The budget of a part that is not recorded goes to the next one that is, which then counts both.
    """
    instants, cold = _instants(record)
    result, before, carried = [], _beginning(record), 0.0
    for name, at in instants:
        seconds = None if at is None or before is None else max((at - before).total_seconds(), 0.0)
        note = "" if seconds is not None else _note(name, cold)
        result.append(ColdPart(name=name, seconds=seconds, budget_seconds=limits[name] + carried, note=note))
        carried = 0.0 if seconds is not None else carried + (limits[name] if note == _UNRECORDED else 0.0)
        before = max(at, before) if at and before else before
    return tuple(result)


def _instants(record: ColdStart) -> tuple[list[tuple[str, datetime | None]], bool]:
    """Return each part with its end, and whether the node came for this pod."""
    pod, node = record.pod or {}, record.node or {}
    pod_created, node_created = _created(record.pod), _created(record.node)
    scheduled = moment(condition(pod, "PodScheduled").get("lastTransitionTime"))
    cold = bool(pod_created and node_created and node_created > pod_created)
    ready = moment(condition(node, "Ready").get("lastTransitionTime"))
    # The scheduler places a pod that waits for a GPU within moments of the node's offering one.
    parts: list[tuple[str, datetime | None]] = [
        ("node claimed", _event(record.events, "TriggeredScaleUp")),
        ("instance running", _in_service(record) if cold else None),
        ("kubelet ready", ready if cold else None),
        ("GPU allocatable", scheduled if cold else None),
        ("scheduled", None if cold else scheduled),
        ("image pulled", _event(record.events, "Pulled")),
    ]
    if record.job is None:
        return [*parts, ("first step", _started(pod))], cold
    steps = record.job.get("steps") or []
    first = next((moment(step["started_at"]) for step in steps if step.get("started_at")), None)
    return [
        ("queued", moment(record.job.get("created_at"))),
        ("assigned", _created(record.runner)),
        ("pod", pod_created),
        *parts,
        ("runner online", moment(record.job.get("started_at"))),
        ("first step", first),
    ], cold


def _beginning(record: ColdStart) -> datetime | None:
    if record.job is None:
        return _created(record.pod)
    return moment((record.run or {}).get("created_at")) or moment(record.job.get("created_at"))


def _note(name: str, cold: bool) -> str:
    if cold:
        return _SAME if name == "scheduled" else _UNRECORDED
    return _WARM if name in _OF_NODE else _UNRECORDED


def _created(item: Object | None) -> datetime | None:
    return moment(item["metadata"].get("creationTimestamp")) if item else None


def _in_service(record: ColdStart) -> datetime | None:
    """Return when Auto Scaling had the node's instance running."""
    provider = str((record.node or {}).get("spec", {}).get("providerID") or "")
    instance = provider.rpartition("/")[2]
    launches = (
        moment(activity.get("EndTime"))
        for activity in record.activities
        if instance and instance in str(activity.get("Description")) and "aunching" in str(activity.get("Description"))
    )
    return next((at for at in launches if at), None)


def _event(events: Sequence[Object], reason: str) -> datetime | None:
    times = [time for event in events if event.get("reason") == reason and (time := happened(event))]
    return max(times, default=None)


def _started(pod: Object) -> datetime | None:
    for container in containers(pod):
        state = container.get("state") or {}
        begun = (state.get("terminated") or state.get("running") or {}).get("startedAt")
        if begun:
            return moment(begun)
    return None
