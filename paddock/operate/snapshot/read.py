"""Reading of a snapshot: every part in parallel, so that one that hangs or is refused leaves the rest."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddock.fleet import Fleet
from paddock.labels import POOL
from paddock.operate.snapshot import logs as log_targets
from paddock.operate.snapshot.model import NOT_READ, Object, Reading, Snapshot, failed, moment, of_fleet
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.dates import answered_at
from paddock.operate.sources.github import GitHubReader
from paddock.operate.sources.kubernetes import KubernetesReader
from paddock.operate.sources.unavailable import NotFound, Unavailable

PATIENCE = 30.0
"""Seconds for the whole snapshot; a part that is not there by then is unknown."""
LOG_PATIENCE = 10.0
"""Seconds for all logs together."""
LOG_FOLLOWED = 4.0
"""Seconds to wait for the log of a pod that is made again and again."""
_LOG_INTERVAL = 0.25
_ARC = "actions.github.com/v1alpha1"
# Kinds of events that every healthy pod leaves by the thousand, and that say nothing here.
_NOISE = ("Created", "Killing", "Pulled", "Started", "SuccessfulCreate", "SuccessfulDelete")
KINDS: Mapping[str, tuple[str, str, dict[str, str]]] = {
    "nodes": ("v1", "Node", {}),
    "pods": ("v1", "Pod", {}),
    "events": ("v1", "Event", {"fieldSelector": ",".join(f"reason!={reason}" for reason in _NOISE)}),
    "runner_sets": (_ARC, "AutoscalingRunnerSet", {}),
    "listeners": (_ARC, "AutoscalingListener", {}),
    "runner_groups": (_ARC, "EphemeralRunnerSet", {}),
    "runners": (_ARC, "EphemeralRunner", {}),
    "daemonsets": ("apps/v1", "DaemonSet", {}),
    "deployments": ("apps/v1", "Deployment", {}),
    "quotas": ("v1", "ResourceQuota", {}),
    "killings": ("v1", "Event", {"fieldSelector": "reason=Killing"}),
}
"""Parts from the cluster."""
USUAL = tuple(part for part in KINDS if part != "killings")
"""Parts that are read unless a command names its own."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Readers of a fleet. Where one is None, `reasons` says why, and its parts are unknown."""

    kubernetes: KubernetesReader | None = None
    aws: AwsReader | None = None
    github: GitHubReader | None = None
    reasons: Mapping[str, Unavailable] = field(default_factory=dict)
    job: str = ""
    """`owner/repository/ID` of the one job that GitHub is asked for."""


def read(
    fleet: Fleet,
    sources: Sources,
    patience: float = PATIENCE,
    *,
    parts: Collection[str] = USUAL,
    logs: bool = False,
) -> Snapshot:
    """Return the fleet as it is now, of the cluster these parts. Never raises for a source that does not answer.

    With `logs` it also reads those of listeners and controllers in trouble.
    """
    readings: dict[str, Reading] = {}
    work: dict[str, Callable[[], Mapping[str, Reading]]] = {}
    reasons = sources.reasons
    if sources.kubernetes:
        for part in parts:
            work[part] = _of_cluster(fleet, sources.kubernetes, part)
    else:
        readings |= _without(parts, reasons.get("kubernetes"), "no cluster is named")
    if sources.aws and fleet.owns_nodes:
        work["aws"] = _of_aws(fleet, sources.aws)
    else:
        readings |= _without(_AWS_PARTS, reasons.get("aws"), "the nodes are not this fleet's")
    if sources.github:
        work["github"] = _of_github(fleet, sources.github, sources.job)
    else:
        readings |= _without(_GITHUB_PARTS, reasons.get("github"), "no credential for GitHub: --github-key FILE")
    readings |= _beside(work, patience)
    clocks = {"machine": datetime.now(UTC), **_clocks(readings)}
    snapshot = Snapshot(fleet, _now(readings, clocks), clocks=clocks, earlier=None, **readings)
    return replace(snapshot, logs=_logs(sources.kubernetes, snapshot)) if logs and sources.kubernetes else snapshot


_OF_SETS = ("listeners", "runner_groups", "runners")
"""Parts that hold nothing of another team's scale sets, whose own names are read as others'."""
_AWS_PARTS = ("node_groups", "scaling_groups", "activities")
_GITHUB_PARTS = ("jobs", "github_runners")
_LOG_BYTES = 256 * 1024
_PARTS = {"aws": _AWS_PARTS, "github": _GITHUB_PARTS}


def _without(parts: Iterable[str], error: Unavailable | None, otherwise: str) -> dict[str, Reading]:
    """Return parts of a source that is not there."""
    return _unknown(parts, str(error), error.fix) if error else _unknown(parts, otherwise)


def _beside(work: Mapping[str, Callable[[], Mapping[str, Reading]]], patience: float) -> dict[str, Reading]:
    results: dict[str, Mapping[str, Reading]] = {}

    def run(key: str) -> None:
        parts = _PARTS.get(key, (key,))
        try:
            results[key] = work[key]()
        except Unavailable as error:
            results[key] = _unknown(parts, str(error), error.fix, error.permission)
        except Exception as error:  # a defect in one part is not a reason to lose the others
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"  # never the message: it may hold what was read
            reason = f"a bug in this reader, please report it: {type(error).__name__} in {where}"
            results[key] = _unknown(parts, reason)

    # Daemons: an interrupt, and a server that hangs, end nothing but themselves.
    threads = {key: threading.Thread(target=run, args=(key,), daemon=True, name=f"read-{key}") for key in work}
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + patience
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"no answer within {patience:.0f} s"
    answers = [dict(results.get(key) or _unknown(_PARTS.get(key, (key,)), late)) for key in work]
    return {part: reading for answer in answers for part, reading in answer.items()}


def _unknown(parts: Iterable[str], reason: str, fix: str = "", permission: str = "") -> dict[str, Reading]:
    return {part: Reading(reason=reason, fix=fix, permission=permission, at=datetime.now(UTC)) for part in parts}


def _known(items: Iterable[Object], clock: datetime | None = None) -> Reading:
    return Reading(tuple(items), at=datetime.now(UTC), clock=clock)


def _of_cluster(fleet: Fleet, reader: KubernetesReader, part: str) -> Callable[[], Mapping[str, Reading]]:
    version, kind, query = KINDS[part]

    def run() -> Mapping[str, Reading]:
        try:
            items = reader.all(version, kind, **query)
            own = (item for item in items if part not in _OF_SETS or of_fleet(fleet, item))
            return {part: _known(own, reader.clock)}
        except NotFound:
            return {part: Reading(absent=True, at=datetime.now(UTC), clock=reader.clock)}

    return run


def _logs(reader: KubernetesReader, snapshot: Snapshot) -> Reading:
    """Read the logs that may say why something ends. They are unknown where none could be read."""
    work = {
        str(number): _of_log(reader, str(number), target) for number, target in enumerate(log_targets.targets(snapshot))
    }
    readings = _beside(work, LOG_PATIENCE).values()
    items = [item for reading in readings for item in reading]
    refused = next((reading for reading in readings if not reading.known), None)
    return refused if refused and not items else _known(items)


def _of_log(reader: KubernetesReader, key: str, target: log_targets.Target) -> Callable[[], Mapping[str, Reading]]:
    def text() -> str | None:
        with suppress(NotFound):
            return reader.log_end(
                target.namespace, target.pod, target.container, previous=target.previous, follow=target.follow
            )
        return None

    def run() -> Mapping[str, Reading]:
        end = text()
        deadline = time.monotonic() + LOG_FOLLOWED
        # A pod that is made again and again has no log before its container runs.
        while not end and target.follow and time.monotonic() < deadline:
            time.sleep(_LOG_INTERVAL)
            end = text()
        return {key: _known(() if end is None else (log_targets.document(target, end),))}

    return run


def _of_aws(fleet: Fleet, aws: AwsReader) -> Callable[[], Mapping[str, Reading]]:
    def run() -> Mapping[str, Reading]:
        parts = _unknown(_AWS_PARTS, "not read")
        try:
            names = aws.pages("eks", "list_nodegroups", "nodegroups", clusterName=fleet.cluster_name)
            described = [
                aws.read("eks", "describe_nodegroup", clusterName=fleet.cluster_name, nodegroupName=name)["nodegroup"]
                for name in map(str, names)
            ]
        except Unavailable as error:
            return _unknown(_AWS_PARTS, str(error), error.fix, error.permission)
        own = [group for group in described if (group.get("labels") or {}).get(POOL) in fleet.pools]
        parts["node_groups"] = _known(own, aws.clock)
        groups = [
            group["name"] for item in own for group in (item.get("resources") or {}).get("autoScalingGroups") or []
        ]
        parts["scaling_groups"] = _attempt(lambda: _scaling_groups(aws, groups))
        parts["activities"] = _attempt(
            lambda: [activity for group in groups for activity in _activities(aws, group)], lambda: aws.clock
        )
        return parts

    return run


def _scaling_groups(aws: AwsReader, groups: list[str]) -> list[dict[str, Any]]:
    if not groups:  # AWS would name those of the whole account
        return []
    key = "AutoScalingGroups"
    return aws.pages("autoscaling", "describe_auto_scaling_groups", key, AutoScalingGroupNames=groups)


def _activities(aws: AwsReader, group: str) -> list[dict[str, Any]]:
    answer = aws.read("autoscaling", "describe_scaling_activities", AutoScalingGroupName=group, MaxRecords=20)
    return [{"AutoScalingGroupName": group, **activity} for activity in answer.get("Activities") or []]


def _attempt(read_: Callable[[], Iterable[Object]], clock: Callable[[], datetime | None] = lambda: None) -> Reading:
    try:
        return _known(read_(), clock())
    except Unavailable as error:
        return Reading(reason=str(error), fix=error.fix, permission=error.permission, at=datetime.now(UTC))


def _of_github(fleet: Fleet, github: GitHubReader, job: str) -> Callable[[], Mapping[str, Reading]]:
    def clock() -> datetime | None:
        return answered_at(github.rate.get("date", ""))

    def run() -> Mapping[str, Reading]:
        jobs = _attempt(lambda: github.jobs(fleet.github, job), clock)
        return {
            "jobs": jobs,
            "github_runners": _attempt(lambda: github.runners(fleet.github), clock),
            "job_log": _job_log(github, job, jobs),
        }

    return run


def _job_log(github: GitHubReader, job: str, jobs: Reading) -> Reading:
    """Return the end of the log of a job that has ended without success: of others it would be read for nothing."""
    if not job or not any(item.get("status") == "completed" and failed(item) for item in jobs):
        return NOT_READ
    owner, repository, number = job.split("/")
    path = f"/repos/{owner}/{repository}/actions/jobs/{number}/logs"
    return _attempt(lambda: [{"id": number, "text": log_targets.without_secrets(github.end_of_text(path, _LOG_BYTES))}])


def _clocks(readings: Mapping[str, Reading]) -> dict[str, datetime]:
    """Return the time of AWS and GitHub, where their answers said it."""
    clocks = {}
    for source, parts in _PARTS.items():
        times = [reading.clock for part in parts if (reading := readings.get(part)) and reading.clock]
        if times:
            clocks[source] = max(times)
    return clocks


def _now(readings: Mapping[str, Reading], clocks: Mapping[str, datetime]) -> datetime:
    """Return the time of the snapshot: the cluster's, else AWS's or GitHub's, else this machine's.

    It is no earlier than what it holds.
    """
    cluster = (reading.clock for part in KINDS if (reading := readings.get(part)) and reading.clock)
    now = max(cluster, default=None) or clocks.get("aws") or clocks.get("github") or clocks["machine"]
    pods = (moment(item["metadata"].get("creationTimestamp")) for item in readings.get("pods", Reading()))
    return max(now, *(created for created in pods if created), datetime.min.replace(tzinfo=UTC))
