"""The pod of a listener: whether it runs, and stays."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from paddock.errors import one_line
from paddock.operate.snapshot.logs import CRASHES, RECENT, pods_of, recent_events
from paddock.operate.snapshot.model import Object, Snapshot, happened, moment, name
from paddock.operate.why.links.evidence import (
    PULL_REASONS,
    SETTLES,
    condition,
    containers,
    latest,
    phase,
    ready,
    restarts,
    span,
    stuck_containers,
    terminated,
    text,
)
from paddock.operate.why.objects import key_of, node_named
from paddock.operate.why.outcome import Outcome, broken, ok, unknown, waits

_YOUNG = timedelta(seconds=30)
"""Age below which a pod says nothing yet of whether it stays."""
_TAKEN_AWAY = ("Evicted", "NodeLost", "NodeShutdown", "Terminated", "Preempting", "NodeAffinity")
"""Reasons of a pod that ended for its node's sake."""
_BOOTS = timedelta(minutes=10)
"""Time that a system node gets from the request to being ready."""


def without_pod(snapshot: Snapshot, item: Object, names: Mapping[str, str]) -> Outcome:
    """Judge a listener that has no pod at the moment."""
    if often := restarted_often(snapshot, item):
        return broken("listener-crashing", often, **names)
    evidence = f"{name(item)} has no pod"
    young = snapshot.age(item) < SETTLES or _seen(snapshot, item) < _YOUNG
    return waits(f"{evidence} yet", passing=True) if young else broken("listener-no-pod", evidence, **names)


def listener_pod(snapshot: Snapshot, item: Object, pod: Object, names: Mapping[str, str]) -> Outcome:
    """Judge a listener's pod."""
    if gone := pod["metadata"].get("deletionTimestamp"):
        # Kubernetes writes the time by which it is gone, with its grace period.
        overdue = snapshot.since(gone)
        evidence = f"{name(pod)} is being deleted{f', and overdue for {span(overdue)}' if overdue else ''}"
        return broken("listener-evicted", evidence, **names) if overdue > _YOUNG else waits(evidence, passing=True)
    for container, reason, message in stuck_containers(pod):
        if reason in PULL_REASONS or reason == "InvalidImageName":
            return broken("listener-image", f"{name(pod)}: {reason}: {message}", **names)
        if reason == "CrashLoopBackOff" or int(container.get("restartCount") or 0) >= CRASHES:
            return broken("listener-crashing", f"{name(pod)}: {reason}{_exit(pod)}", **names)
    stays = phase(pod) == "Running" and snapshot.age(pod) >= SETTLES
    if not stays and (often := restarted_often(snapshot, item)):
        return broken("listener-crashing", f"{often}{_exit(pod)}", **names)
    if condition(pod, "PodScheduled").get("status") == "False":
        return _unplaced(snapshot, pod, names)
    if phase(pod) in ("Failed", "Succeeded"):
        return _ended(snapshot, pod, names)
    if restarts(pod) >= CRASHES and not ready(pod):
        return broken("listener-crashing", f"{name(pod)} was restarted {restarts(pod)} times{_exit(pod)}", **names)
    if phase(pod) != "Running":
        return _starting(snapshot, pod)
    return _running(snapshot, item, pod, names)


def restarted_often(snapshot: Snapshot, item: Object) -> str:
    """Return that ARC has made pod after pod of a listener, by their events; empty where it has not."""
    recent = recent_events(snapshot, item)
    pods = pods_of(recent)
    if pods < CRASHES:
        return ""
    first = max(snapshot.since(event.get("firstTimestamp") or happened(event)) for event in recent)
    return f"{name(item)} has had {pods} pods in the last {span(min(first, RECENT))}"


def _events(snapshot: Snapshot, item: Object) -> list[Object]:
    """Return the events of all pods that a listener has had: each has its name."""
    return snapshot.events_named({"kind": "Pod", "metadata": item["metadata"]})


def _seen(snapshot: Snapshot, item: Object) -> timedelta:
    """Return the time since the last sign of a pod of a listener."""
    times = [happened(event) for event in _events(snapshot, item)]
    before = snapshot.earlier
    had_one = before is not None and any(key_of(pod) == key_of(item) for pod in before.pods)
    return timedelta() if had_one else min(map(snapshot.since, filter(None, times)), default=timedelta.max)


def _unplaced(snapshot: Snapshot, pod: Object, names: Mapping[str, str]) -> Outcome:
    verdict = condition(pod, "PodScheduled")
    evidence = f"{name(pod)}: {one_line(str(verdict.get('message')))}"
    bought = latest(snapshot, pod, "TriggeredScaleUp")
    if bought and snapshot.since(happened(bought)) < _BOOTS:
        return waits(f"{evidence}; {text(bought)}")
    return waits(evidence) if snapshot.age(pod) < SETTLES else broken("listener-unschedulable", evidence, **names)


def _ended(snapshot: Snapshot, pod: Object, names: Mapping[str, str]) -> Outcome:
    """Judge a pod that has ended: ARC replaces one at once, unless it cannot."""
    why = str((pod.get("status") or {}).get("reason") or condition(pod, "DisruptionTarget").get("reason") or "")
    evidence = f"{name(pod)} has ended{f': {why}' if why else ''}{_exit(pod)}"
    ended = _end(pod)
    if ended is not None and snapshot.since(ended) < _YOUNG:
        return waits(evidence, passing=True)
    taken = why in _TAKEN_AWAY or bool(condition(pod, "DisruptionTarget"))
    return broken("listener-evicted" if taken else "listener-crashing", evidence, **names)


def _end(pod: Object) -> datetime | None:
    times = [moment(terminated(container).get("finishedAt")) for container in containers(pod)]
    times.append(moment(condition(pod, "DisruptionTarget").get("lastTransitionTime")))
    return max(filter(None, times), default=None)


def _starting(snapshot: Snapshot, pod: Object) -> Outcome:
    age, state = snapshot.age(pod), phase(pod)
    if age < SETTLES:
        return waits(f"{name(pod)} has been starting for {span(age)}")
    event = latest(snapshot, pod, "Failed", "FailedMount", "FailedCreatePodSandBox", "BackOff")
    lasts = f"{name(pod)} has been {state or 'without phase'} for {span(age)}"
    return unknown(f"{lasts}; {text(event) or 'no event says why'}")


def _running(snapshot: Snapshot, item: Object, pod: Object, names: Mapping[str, str]) -> Outcome:
    here = str(pod["spec"].get("nodeName") or "")
    node = node_named(snapshot, here)
    if node is None and snapshot.nodes.known and here:
        return broken("listener-evicted", f"{name(pod)} is on {here}, which is not in the cluster", **names)
    if node is not None and not ready(node):
        return broken("listener-evicted", f"{name(pod)} is on {name(node)}, which is not ready", **names)
    age = snapshot.age(pod)
    evidence = f"{name(pod)} has been running for {span(age)}"
    if age >= _YOUNG or snapshot.age(item) < SETTLES:
        return ok(evidence)
    if snapshot.earlier is None:
        return waits(f"{evidence}, and {name(item)} is {span(snapshot.age(item))} old", passing=True)
    uids = {other["metadata"].get("uid") for other in snapshot.earlier.pods if key_of(other) == key_of(pod)}
    if uids == {pod["metadata"].get("uid")}:
        return ok(evidence)
    return broken("listener-crashing", f"{evidence}, in the place of another a few seconds before", **names)


def _exit(pod: Object) -> str:
    ended = next((terminated(container) for container in containers(pod) if terminated(container)), None)
    if not ended:
        return ""
    return f", exit code {ended.get('exitCode')} ({ended.get('reason') or 'no reason'})"
