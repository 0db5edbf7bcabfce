"""Pods and nodes of a job's runner: from pods that are there, events of those that are gone, and earlier looks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from paddock.operate.runners.rerun.decide import CLOCKS
from paddock.operate.runners.rerun.model import Evidence, Job, Placement
from paddock.operate.runners.rerun.reclaimed import instance_of, judge
from paddock.operate.snapshot.model import Object, Snapshot, happened, moment, name
from paddock.operate.sources.aws_instances import Instances
from paddock.operate.why.objects import OF_RUNNER, RUNNER_LABEL

_ASSIGNED = re.compile(r"Successfully assigned (\S+) to (\S+)")
"""The scheduler's message of an event Scheduled."""
_LONGEST_JOB = timedelta(days=6)
"""GitHub ends a job after five days."""
_WORKFLOW, _LONGEST_NAME = "-workflow", 63
"""The container hook's suffix for the pod of a job, and the most letters of that name."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One pod on one node: by `namespace/name` and uid."""

    pod: str
    uid: str
    node: str
    since: datetime


@dataclass(slots=True)
class Memory:
    """Pods and nodes of earlier looks. A node that is gone cannot say any more which instance it was."""

    pods: dict[tuple[str, str], _Seen] = field(default_factory=dict)
    machines: dict[str, set[tuple[datetime, str]]] = field(default_factory=dict)
    """Instances of a node's name, each with when it joined."""
    runs: set[tuple[str, int]] = field(default_factory=set)
    """Repositories and runs of jobs that runners had."""

    def learn(self, snapshot: Snapshot) -> None:
        """Keep what a look shows, and forget what no job can ask for any more."""
        self.pods = {key: seen for key, seen in self.pods.items() if seen.since > snapshot.at - _LONGEST_JOB}
        for pod in snapshot.pods:
            if _is_of_runner(pod) and (seen := _of_pod(pod)):
                self.pods[seen.pod, seen.uid] = seen
        for node in snapshot.nodes:
            id_, joined = instance_of(node), moment(node["metadata"].get("creationTimestamp"))
            if id_ and joined:
                self.machines.setdefault(str(node["metadata"]["name"]), set()).add((joined, id_))
        for runner in snapshot.runners:
            status = runner.get("status") or {}
            if status.get("jobRepositoryName") and status.get("workflowRunId"):
                self.runs.add((str(status["jobRepositoryName"]), int(status["workflowRunId"])))

    def instance(self, node: str, since: datetime) -> str:
        """Return the instance that a node's name stood for at a time, empty where no look showed it."""
        joined = [(time, id_) for time, id_ in self.machines.get(node, ()) if time <= since + CLOCKS]
        return max(joined)[1] if joined else ""


def evidence(snapshot: Snapshot, job: Job, memory: Memory, instances: Instances) -> Evidence:
    """Return the pods of a job's runner with the verdict on each one's node, or why there are none."""
    unread = [part for part in (snapshot.pods, snapshot.events) if not part.known]
    places = [
        replace(placement, killed=_killed(snapshot, placement)) for placement in _placements(snapshot, job, memory)
    ]
    if places:
        return Evidence(tuple((placement, judge(snapshot, placement, instances)) for placement in places))
    if unread:
        return Evidence((), f"pods and events are not known: {unread[0].reason}", unread[0].fix, unread[0].permission)
    return Evidence(
        (),
        f"no pod {job.runner} is there, and no event says on which node it was: events are kept for an hour",
        "run this within the hour, or with --watch",
    )


def _placements(snapshot: Snapshot, job: Job, memory: Memory) -> Iterator[Placement]:
    """Yield the pod of the job itself, then the runner's: either takes the job with it."""
    if job.started is None or job.ended is None:
        return
    seen = list(_seen(snapshot, memory))
    pools = _pools(snapshot, job.runner)
    own = (job.runner[: _LONGEST_NAME - len(_WORKFLOW)] + _WORKFLOW, job.ended)
    # ARC makes another pod of the runner's name when one is lost: the job had the last one before it started.
    for pod_name, latest in (own, (job.runner, job.started + CLOCKS)):
        fitting = [
            placement for placement in seen if placement.pod.partition("/")[2] == pod_name and placement.since <= latest
        ]
        if fitting:
            last = max(fitting, key=lambda placement: placement.since)
            yield Placement(
                last.pod,
                last.node,
                last.since,
                last.uid,
                instance=memory.instance(last.node, last.since),
                pool=pools.get(pod_name == job.runner, ""),
            )


def _pools(snapshot: Snapshot, runner: str) -> Mapping[bool, str]:
    """Return the pool of a runner's own pod (True) and of its job's pod (False)."""
    for spec in snapshot.fleet.runners.values():
        if is_runner_of(spec.scale_set, runner):
            return {spec.container != "kubernetes-novolume": spec.pool, False: spec.pool}
    return {}


def is_runner_of(scale_set: str, runner: str) -> bool:
    """Return whether ARC would give a scale set's runner that name: SET-ABCDE-runner-ABCDE."""
    return bool(re.fullmatch(rf"{re.escape(scale_set)}-([a-z0-9]+-)?runner-[a-z0-9]+", runner))


def _seen(snapshot: Snapshot, memory: Memory) -> Iterator[_Seen]:
    yield from (placement for pod in snapshot.pods if (placement := _of_pod(pod)))
    yield from memory.pods.values()
    for event in snapshot.events:
        about, at = event.get("involvedObject") or {}, happened(event)
        match = _ASSIGNED.search(str(event.get("message") or "")) if event.get("reason") == "Scheduled" else None
        if match and at and about.get("kind") == "Pod":
            yield _Seen(match[1], str(about.get("uid") or ""), match[2], at)


def _of_pod(pod: Object) -> _Seen | None:
    node, created = pod["spec"].get("nodeName"), moment(pod["metadata"].get("creationTimestamp"))
    return _Seen(name(pod), str(pod["metadata"].get("uid") or ""), str(node), created) if node and created else None


def _killed(snapshot: Snapshot, placement: Placement) -> datetime | None:
    """Return when the kubelet of that node said that it ends the pod."""
    times = (happened(event) for event in _of(snapshot.killings, placement))
    return min((at for at in times if at and at >= placement.since - CLOCKS), default=None)


def _of(events: Iterable[Object], placement: Placement) -> Iterator[Object]:
    """Yield the events of a pod, not of another one with its name."""
    for event in events:
        about = event.get("involvedObject") or {}
        same = f"{about.get('namespace')}/{about.get('name')}" == placement.pod
        if same and about.get("kind") == "Pod" and about.get("uid") in (None, "", placement.uid or about.get("uid")):
            yield event


def _is_of_runner(pod: Object) -> bool:
    labels: Mapping[str, Any] = pod["metadata"].get("labels") or {}
    return RUNNER_LABEL in labels or OF_RUNNER in labels
