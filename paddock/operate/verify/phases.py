"""Cold start of a pod, part by part, from what Kubernetes recorded of it. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from paddock.catalog.nodes import cold_start
from paddock.fleet import Fleet
from paddock.fleet.model.pool import Bottlerocket, GpuPool
from paddock.operate.chain.links.evidence import condition, containers
from paddock.operate.snapshot.model import Object, happened, moment
from paddock.operate.verify.report import Phase

BUDGETS: Mapping[str, float] = MappingProxyType(
    {
        "node claimed": 60.0,
        "instance running": 120.0,
        "kubelet ready": 240.0,
        "GPU allocatable": 180.0,
        "scheduled": 30.0,
        "image pulled": 600.0,
        "first step": 60.0,
    }
)
"""Seconds that each part may take, where no published figure is higher: choices of ours, not measurements."""
_SLACK = 2.0
"""A part may take so many times the highest published figure."""


def budgets(fleet: Fleet, pool: GpuPool) -> dict[str, float]:
    """Return the seconds that each part may take on a pool's operating system."""
    system = "bottlerocket" if isinstance(fleet.ami(pool), Bottlerocket) else "al2023"
    highest = {part.key: part.high * _SLACK for part in cold_start(system)}
    published = {
        "kubelet ready": highest["node"],
        "GPU allocatable": highest["plugin"],
        "image pulled": highest["pull"],
    }
    return {name: max(seconds, published.get(name, 0.0)) for name, seconds in BUDGETS.items()}


def phases(
    pod: Object,
    node: Object | None,
    events: Sequence[Object],
    allocatable_at: datetime | None,
    limits: Mapping[str, float],
) -> tuple[Phase, ...]:
    """Return the parts from the pod's creation to its program's start. A warm node has no parts of its own.

    `allocatable_at` is when the node was seen with its GPUs, None where it had them before the pod.
    """
    made = moment(pod["metadata"].get("creationTimestamp"))
    node_made = moment(node["metadata"].get("creationTimestamp")) if node else None
    cold = bool(made and node_made and node_made > made)
    ready_at = moment(condition(node or {}, "Ready").get("lastTransitionTime")) if cold else None
    instants: list[tuple[str, datetime | None]] = [
        ("node claimed", _event(events, "TriggeredScaleUp")),
        ("instance running", node_made if cold else None),
        ("kubelet ready", ready_at),
        ("GPU allocatable", allocatable_at if cold else None),
        ("scheduled", moment(condition(pod, "PodScheduled").get("lastTransitionTime"))),
        ("image pulled", _event(events, "Pulled")),
        ("first step", _started(pod)),
    ]
    result, before = [], made
    for name, at in instants:
        seconds = None if at is None or before is None else max((at - before).total_seconds(), 0.0)
        note = "" if seconds is not None else "the node was there" if not cold and name in _OF_NODE else "not recorded"
        result.append(Phase(name=name, seconds=seconds, budget_seconds=limits[name], note=note))
        before = max(at, before) if at and before else before
    return tuple(result)


_OF_NODE = ("node claimed", "instance running", "kubelet ready", "GPU allocatable")


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
