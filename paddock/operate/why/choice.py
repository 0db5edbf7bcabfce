"""Choice of the runner of a scale set that a walk is about: the one that waits longest or is in trouble."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from paddock.operate.snapshot.model import Object, Snapshot
from paddock.operate.why.objects import job_pod, node_named, phase, pod_of, ready, work_of

IDLE_LONG = timedelta(minutes=2)
"""Time after which an idle runner next to a queued job means that GitHub does not assign it."""


def choose(
    snapshot: Snapshot, own: Sequence[Object], own_pods: Sequence[Object], *, queued: bool
) -> tuple[Object | None, Object | None]:
    """Return the runner to walk along, and its pod: for a queued job one that has no other."""
    if queued:
        own = [item for item in own if not busy(snapshot, item)]
        # Pods alone do not say which of them has a job.
        known = snapshot.runners.known
        own_pods = [pod for pod in own_pods if known or (phase(pod) != "Running" and not busy(snapshot, pod))]
    if own:
        runner = min(own, key=lambda item: _urgency(snapshot, item, pod_of(own_pods, item), queued=queued))
        return runner, pod_of(own_pods, runner)
    if own_pods and not snapshot.runners.items:
        return None, min(own_pods, key=lambda item: _urgency(snapshot, item, item, queued=queued))
    return None, None


def busy(snapshot: Snapshot, runner: Object) -> bool:
    """Return whether a runner has a job, by ARC's word or GitHub's."""
    return bool(work_of(runner)) or bool((at_github(snapshot, runner) or {}).get("busy"))


def at_github(snapshot: Snapshot, runner: Object) -> Object | None:
    """Return a runner as GitHub has it. None where it has none, or is not known."""
    name = runner["metadata"]["name"]
    return next((runner for runner in snapshot.github_runners if runner.get("name") == name), None)


def idle_for(snapshot: Snapshot, runner: Object, pod: Object | None) -> timedelta | None:
    """Return how long a runner has been up without a job; None where it is not up, or GitHub does not say online."""
    there = at_github(snapshot, runner)
    if pod is None or phase(pod) != "Running" or busy(snapshot, runner):
        return None
    return up_for(snapshot, pod) if there is not None and there.get("status") == "online" else None


def up_for(snapshot: Snapshot, pod: Object) -> timedelta:
    """Return the time since a pod's runner was started: the kubelet took the pod long before, where it pulled."""
    status = pod.get("status") or {}
    # The runner's own container before those next to it.
    own = sorted(status.get("containerStatuses") or [], key=lambda container: container.get("name") != "runner")
    times = ((container.get("state") or {}).get("running", {}).get("startedAt") for container in own)
    otherwise = status.get("startTime") or pod["metadata"].get("creationTimestamp")
    return snapshot.since(next(filter(None, times), otherwise))


def _urgency(snapshot: Snapshot, item: Object, pod: Object | None, *, queued: bool) -> tuple[int, str]:
    """Return the order of runners: those that wait, those in trouble, idle ones, those at work; the oldest first."""
    created = str(item["metadata"].get("creationTimestamp"))
    if queued and (idle := idle_for(snapshot, item, pod)) is not None and idle > IDLE_LONG:
        return -1, created
    work = job_pod(snapshot, pod)
    if work is not None and phase(work) not in ("Running", "Succeeded"):
        return 0, created
    in_trouble = pod is not None and (phase(pod) == "Failed" or _stranded(snapshot, pod))
    if phase(item) in ("Failed", "Outdated") or in_trouble:
        return 1, created
    if pod is None or phase(pod) not in ("Running", "Succeeded"):
        return 0, created
    if busy(snapshot, item) or phase(pod) == "Succeeded":
        return 3, created
    offline = snapshot.github_runners.known and idle_for(snapshot, item, pod) is None
    return (1 if offline and up_for(snapshot, pod) > IDLE_LONG else 2), created


def _stranded(snapshot: Snapshot, pod: Object) -> bool:
    """Return whether a pod is on a node that is gone or not ready."""
    here = pod["spec"].get("nodeName")
    if not here or not snapshot.nodes.known:
        return False
    node = node_named(snapshot, here)
    return node is None or not ready(node)
