"""Launches of a pool, as AWS reports them: health of its node groups, and activities of their Auto Scaling groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from paddock.errors import one_line
from paddock.labels import POOL
from paddock.operate.snapshot.model import Object, Snapshot, happened
from paddock.operate.why.links.evidence import SETTLES, text
from paddock.operate.why.outcome import Outcome, broken
from paddock.operate.why.subject import Subject

_FRESH = timedelta(hours=1)
"""Age from which an activity of Auto Scaling explains nothing that happens now."""
_SLACK = timedelta(minutes=1)
"""Time by which an activity may begin before the autoscaler writes its event."""

# What AWS says when a launch fails -> runbook. The first that matches counts.
LAUNCH_FAILURES: tuple[tuple[str, str], ...] = (
    (r"PendingVerification|accessing resources in this region is being validated", "account-validated"),
    (r"requested instance type \([^)]+\) is not supported in your requested Availability Zone", "zone-lacks-type"),
    (r"VolumeLimitExceeded|exceeded (?:your|the) maximum \w+ storage limit", "no-disk-quota"),
    (
        r"VcpuLimitExceeded|MaxSpotInstanceCountExceeded|Max spot instance count exceeded|vCPU (capacity|limit)"
        r"|exceeds your quota|quota",
        "no-quota",
    ),
    (
        r"InsufficientInstanceCapacity|UnfulfillableCapacity|do not have sufficient|no Spot capacity"
        r"|InsufficientHostCapacity"
        r"|capacity-not-available|ReservationCapacityExceeded",
        "no-capacity",
    ),
    (r"InsufficientFreeAddresses|not enough free addresses|insufficient free (IP )?addresses", "no-addresses"),
    (r"service-linked role|AuthFailure\.ServiceLinkedRole|Client\.InternalError|KMS|InvalidKMSKey", "no-spot-right"),
    (
        r"launch template|LaunchTemplate|InvalidAMIID|InvalidGroup|AMI .*(not exist|invalid)|image id .*not exist"
        r"|security group .* does not exist",
        "launch-template-broken",
    ),
)
# Codes of EKS's health issues -> runbook.
HEALTH: Mapping[str, str] = MappingProxyType(
    {
        "InstanceLimitExceeded": "no-quota",
        "InsufficientFreeAddresses": "no-addresses",
        "Ec2LaunchTemplateNotFound": "launch-template-broken",
        "Ec2LaunchTemplateInvalidConfiguration": "launch-template-broken",
        "Ec2LaunchTemplateVersionMismatch": "launch-template-broken",
        "Ec2LaunchTemplateMaxLimitExceeded": "launch-template-broken",
        "AmiIdNotFound": "launch-template-broken",
        "Ec2SecurityGroupNotFound": "launch-template-broken",
        "NodeCreationFailure": "node-never-joined",
    }
)


def own_groups(snapshot: Snapshot, subject: Subject) -> list[Object]:
    """Return the EKS node groups of the pool."""
    return [item for item in snapshot.node_groups if (item.get("labels") or {}).get(POOL) == subject.pool.name]


def scaling_names(group: Object) -> list[str]:
    """Return the names of a node group's Auto Scaling groups."""
    return [str(item["name"]) for item in (group.get("resources") or {}).get("autoScalingGroups") or []]


def launch_runbook(message: str, otherwise: str = "launch-failed") -> str:
    """Return the runbook of AWS's reason for a failed launch."""
    return next((id_ for pattern, id_ in LAUNCH_FAILURES if re.search(pattern, message, re.IGNORECASE)), otherwise)


def failed_launch(snapshot: Snapshot, subject: Subject, up: Object | None) -> Outcome | None:
    """Return why AWS starts no instance for the pod: each node group that could have started one has failed.

    `up` is the event of the purchase. What happened before it, or before there was the pod, explains nothing.
    """
    pod = subject.pod
    if pod is None:
        return None
    since = min(snapshot.since(happened(up)) if up else snapshot.age(pod), _FRESH) + _SLACK
    groups = _named(own_groups(snapshot, subject), text(up))
    failures = [_failure(snapshot, group, since) for group in groups]
    if not failures or any(failure is None for failure in failures):
        return None  # another group of the pool may start one, as a fallback does
    young = up is None and snapshot.age(pod) < SETTLES  # the autoscaler may not have tried
    return None if young else failures[0]


def _named(groups: list[Object], event: str) -> list[Object]:
    """Return those of the node groups that the autoscaler's event names, else all."""
    return [group for group in groups if any(own in event for own in scaling_names(group))] or groups


def _failure(snapshot: Snapshot, group: Object, since: timedelta) -> Outcome | None:
    """Return why a node group starts no instance; None where it starts one, or has not been asked."""
    names = {"group": str(group["nodegroupName"]), "cluster": str(group.get("clusterName", ""))}
    for scaling in scaling_names(group):
        state, message = newest_launch(snapshot, scaling, since)
        if state == "Failed":
            evidence = f"Auto Scaling of {scaling}: {message}"
            return broken(launch_runbook(message), evidence, **{**names, "group": scaling})
        if state:
            return None
    for issue in (group.get("health") or {}).get("issues") or []:
        code, message = str(issue.get("code")), one_line(str(issue.get("message") or ""))
        runbook = HEALTH.get(code) or launch_runbook(f"{code} {message}", "node-group-unhealthy")
        if runbook != "node-never-joined":  # which is the next link's
            return broken(runbook, f"EKS of {names['group']}: {code}: {message}", **names)
    return None


def newest_launch(snapshot: Snapshot, scaling_group: str, since: timedelta = _FRESH) -> tuple[str, str]:
    """Return state and message of a group's newest launch in that time; empty where there was none."""
    for activity in snapshot.activities:
        if activity.get("AutoScalingGroupName") != scaling_group:
            continue
        if not str(activity.get("Description", "")).startswith("Launching"):
            continue
        if snapshot.since(activity.get("StartTime"), "aws") > since:
            return "", ""
        message = one_line(str(activity.get("StatusMessage") or activity.get("Description") or ""))
        state = str(activity.get("StatusCode"))
        return ("Failed" if state in ("Failed", "Cancelled") else state), message
    return "", ""
