"""Evidence in Kubernetes objects: conditions, states of containers, events, durations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from paddock.errors import one_line
from paddock.operate.snapshot.model import Object, Snapshot
from paddock.operate.why.objects import condition as condition
from paddock.operate.why.objects import phase as phase
from paddock.operate.why.objects import ready as ready

SETTLES = timedelta(minutes=2)
"""Time that a controller gets to make what follows, before its absence is a fault."""
PULL_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable"})


def containers(pod: Object) -> list[Object]:
    """Return the status of each container, those that start first before the others."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def waiting(container: Object) -> Object:
    return (container.get("state") or {}).get("waiting") or {}


def terminated(container: Object) -> Object:
    """Return how a container ended, now or the last time."""
    ended = (container.get("state") or {}).get("terminated") or (container.get("lastState") or {}).get("terminated")
    return ended or {}


def restarts(pod: Object) -> int:
    return max((int(container.get("restartCount") or 0) for container in containers(pod)), default=0)


def failures(runner: Object | None) -> dict[str, Any]:
    """Return the pods of an EphemeralRunner that failed before they had a job: their uids, with the times.

    ARC 0.14 deletes such a pod, notes it here and makes another; after the sixth it deletes the runner itself.
    """
    return dict(((runner or {}).get("status") or {}).get("failures") or {})


def latest(snapshot: Snapshot, item: Object, *reasons: str) -> Object | None:
    """Return the newest event of an object with one of these reasons."""
    events = [event for event in snapshot.events_of(item) if event.get("reason") in reasons]
    return events[-1] if events else None


def text(event: Object | None) -> str:
    """Return an event in a sentence."""
    return one_line(f"{event.get('reason')}: {event.get('message', '')}") if event else ""


def span(time: timedelta) -> str:
    """Return a duration for people: `40 s`, `12 min`, `3 h`."""
    seconds = int(time.total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def stuck_containers(pod: Object) -> Iterator[tuple[Object, str, str]]:
    """Yield each container that does not start, with the runtime's reason and message."""
    for container in containers(pod):
        state = waiting(container)
        if state.get("reason") and state["reason"] not in ("ContainerCreating", "PodInitializing"):
            yield container, str(state["reason"]), one_line(str(state.get("message") or ""))


def spec_of(pod: Object, name: str) -> dict[str, Any]:
    """Return a container of a pod's spec by name."""
    spec = pod["spec"]
    every = [*(spec.get("initContainers") or []), *spec["containers"]]
    return next((dict(container) for container in every if container["name"] == name), {})


def unavailable_for(snapshot: Snapshot, deployment: Object) -> timedelta | None:
    """Return how long a Deployment has had no available replica; None where it has one."""
    if (deployment.get("status") or {}).get("availableReplicas"):
        return None
    verdict = condition(deployment, "Available")
    down = verdict.get("lastTransitionTime") if verdict.get("status") == "False" else None
    return snapshot.since(down or deployment["metadata"].get("creationTimestamp"))
