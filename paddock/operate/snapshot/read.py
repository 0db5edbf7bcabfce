"""Reading of a snapshot: every part beside the others, so that one that hangs or is refused leaves the rest."""

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

from paddock.fleet import Fleet, nodes
from paddock.operate.snapshot import logs as log_targets
from paddock.operate.snapshot.model import Object, Reading, Snapshot, moment
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.github import GitHubReader
from paddock.operate.sources.kubernetes import KubernetesReader
from paddock.operate.sources.unavailable import NotFound, Unavailable

PATIENCE = 30.0
"""Seconds for the whole snapshot; a part that is not there by then is unknown."""
LOG_PATIENCE = 10.0
"""Seconds for all logs together."""
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
    reasons: Mapping[str, str] = field(default_factory=dict)
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
            work[part] = _of_cluster(sources.kubernetes, part)
    else:
        readings |= _unknown(parts, reasons.get("kubernetes", "no cluster is named"))
    if sources.aws and fleet.owns_nodes:
        work["aws"] = _of_aws(fleet, sources.aws)
    else:
        readings |= _unknown(_AWS_PARTS, reasons.get("aws", "the nodes are not this fleet's"))
    if sources.github:
        work["github"] = _of_github(fleet, sources.github, sources.job)
    else:
        readings |= _unknown(_GITHUB_PARTS, reasons.get("github", "no credential for GitHub: --github-key FILE"))
    readings |= _beside(work, patience)
    snapshot = Snapshot(fleet, _now(readings), **readings)
    return replace(snapshot, logs=_logs(sources.kubernetes, snapshot)) if logs and sources.kubernetes else snapshot


_AWS_PARTS = ("node_groups", "scaling_groups", "activities")
_GITHUB_PARTS = ("jobs", "github_runners")
_PARTS = {"aws": _AWS_PARTS, "github": _GITHUB_PARTS}


def _beside(work: Mapping[str, Callable[[], Mapping[str, Reading]]], patience: float) -> dict[str, Reading]:
    results: dict[str, Mapping[str, Reading]] = {}

    def run(key: str) -> None:
        parts = _PARTS.get(key, (key,))
        try:
            results[key] = work[key]()
        except Unavailable as error:
            results[key] = _unknown(parts, str(error), error.fix, error.permission)
        except Exception as error:  # a defect in one part is no reason to lose the others
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"  # never the message: it may hold what was read
            reason = f"a defect of this reading, please report it: {type(error).__name__} in {where}"
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


def _known(items: Iterable[Object]) -> Reading:
    return Reading(tuple(items), at=datetime.now(UTC))


def _of_cluster(reader: KubernetesReader, part: str) -> Callable[[], Mapping[str, Reading]]:
    version, kind, query = KINDS[part]

    def run() -> Mapping[str, Reading]:
        try:
            return {part: _known(reader.all(version, kind, **query))}
        except NotFound:
            return {part: Reading(absent=True, at=datetime.now(UTC))}

    return run


def _logs(reader: KubernetesReader, snapshot: Snapshot) -> Reading:
    """Read the logs that may say why something ends. Where one is refused, so are the others."""
    found: list[Object] = []
    targets = log_targets.targets(snapshot)

    def run() -> Mapping[str, Reading]:
        for target in targets:
            with suppress(NotFound):
                text = reader.log_end(target.namespace, target.pod, target.container, previous=target.previous)
                found.append(log_targets.document(target, text))
        return {"logs": _known(found)}

    if not targets:
        return _known(())
    reading = _beside({"logs": run}, LOG_PATIENCE)["logs"]
    return reading if reading.known or not found else _known(tuple(found))


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
        own = [group for group in described if (group.get("labels") or {}).get(nodes.POOL) in fleet.pools]
        parts["node_groups"] = _known(own)
        groups = [
            group["name"] for item in own for group in (item.get("resources") or {}).get("autoScalingGroups") or []
        ]
        parts["scaling_groups"] = _attempt(lambda: _scaling_groups(aws, groups))
        parts["activities"] = _attempt(lambda: [one for group in groups for one in _activities(aws, group)])
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


def _attempt(read_: Callable[[], Iterable[Object]]) -> Reading:
    try:
        return _known(read_())
    except Unavailable as error:
        return Reading(reason=str(error), fix=error.fix, permission=error.permission, at=datetime.now(UTC))


def _of_github(fleet: Fleet, github: GitHubReader, job: str) -> Callable[[], Mapping[str, Reading]]:
    def run() -> Mapping[str, Reading]:
        return {
            "jobs": _attempt(lambda: github.jobs(fleet.github, job)),
            "github_runners": _attempt(lambda: github.runners(fleet.github)),
        }

    return run


def _now(readings: Mapping[str, Reading]) -> datetime:
    """Return the time of the snapshot: no earlier than what it holds, where this machine's clock is behind."""
    pods = (moment(item["metadata"].get("creationTimestamp")) for item in readings.get("pods", Reading()))
    return max(datetime.now(UTC), *(created for created in pods if created), datetime.min.replace(tzinfo=UTC))
