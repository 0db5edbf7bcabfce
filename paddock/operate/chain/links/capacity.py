"""From a waiting pod to a node that is there: node group, Auto Scaling activity, autoscaler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from paddock.errors import one_line
from paddock.fleet import nodes
from paddock.kube import pods
from paddock.operate.chain.links.evidence import condition, latest, ready, span, text
from paddock.operate.chain.outcome import Outcome, broken, ok, unknown, unread, waits
from paddock.operate.chain.subject import Subject, occupants, pool_nodes
from paddock.operate.snapshot.model import Object, Snapshot, happened, name

BOOTS = timedelta(minutes=15)
"""Time that a GPU node gets from the request to being ready; cluster-autoscaler gives up after the same."""
_SETTLES = timedelta(minutes=2)
_FRESH = timedelta(hours=1)
"""Age from which an activity of Auto Scaling explains nothing that happens now."""

# What AWS says when a launch fails -> runbook. The first that matches counts.
LAUNCH_FAILURES: tuple[tuple[str, str], ...] = (
    (r"VcpuLimitExceeded|MaxSpotInstanceCountExceeded|vCPU (capacity|limit)|exceeds your quota|quota", "no-quota"),
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


def node_group(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether a node is bought for the pod, and why not."""
    item = subject.pod
    if item is None:
        return unknown("there is no pod")
    if node := item["spec"].get("nodeName"):
        return ok(f"it is on {node}")
    if not snapshot.nodes.known:
        return unread(snapshot.nodes, "nodes")
    unusable = unfit_nodes(snapshot, subject)
    if unusable:
        return ok(f"{name(unusable[0])} of pool {subject.pool.name} is there, and cannot take it")
    free = [node for node in pool_nodes(snapshot, subject.pool) if _has_room(snapshot, node, item)]
    if free:
        return waits(f"{name(free[0])} has room, and the scheduler has not placed the pod yet")
    if not snapshot.fleet.owns_nodes:
        return broken("pool-at-max", f"all {len(pool_nodes(snapshot, subject.pool))} nodes of the pool are in use")
    for judge in (_launches, _autoscaler):
        if outcome := judge(snapshot, subject, item):
            return outcome
    if not snapshot.activities.known:
        return unread(snapshot.activities, "node groups and their activities")
    return unknown(
        "no event says what the autoscaler decided, and AWS reports no failed launch",
        "kubectl -n kube-system logs deployment/cluster-autoscaler-aws-cluster-autoscaler --tail 50",
    )


def unfit_nodes(snapshot: Snapshot, subject: Subject) -> list[Object]:
    """Return the nodes of the pool that take no job in their state, the newest first."""

    def unfit(node: Object) -> bool:
        gpus = pods.amounts((node.get("status") or {}).get("allocatable")).get(nodes.GPU, 0)
        return not ready(node) or not gpus or bool(node["spec"].get("unschedulable")) or _pressed(node) or _fewer(node)

    present = pool_nodes(snapshot, subject.pool)
    bad = [node for node in present if unfit(node) or _tainted(subject, node)]
    return sorted(bad, key=lambda node: str(node["metadata"].get("creationTimestamp")), reverse=True)


def _fewer(node: Object) -> bool:
    """Return whether the plugin has taken a GPU of the node out of use."""
    status = node.get("status") or {}
    gpus = [pods.amounts(status.get(part)).get(nodes.GPU, 0) for part in ("allocatable", "capacity")]
    return gpus[0] < gpus[1]


def _pressed(node: Object) -> bool:
    return any(condition(node, f"{what}Pressure").get("status") == "True" for what in ("Disk", "Memory", "PID"))


def _tainted(subject: Subject, node: Object) -> bool:
    return subject.pod is not None and not pods.tolerates(subject.pod, node["spec"].get("taints") or [])


def _has_room(snapshot: Snapshot, node: Object, pod: Object) -> bool:
    has = pods.amounts((node.get("status") or {}).get("allocatable"))
    used = pods.total(pods.requests(other) for other in occupants(snapshot, node))
    return pods.fits(pods.requests(pod), {key: amount - used.get(key, 0) for key, amount in has.items()})


def own_groups(snapshot: Snapshot, subject: Subject) -> list[Object]:
    """Return the EKS node groups of the pool."""
    return [item for item in snapshot.node_groups if (item.get("labels") or {}).get(nodes.POOL) == subject.pool.name]


def _scaling_names(group: Object) -> list[str]:
    return [str(item["name"]) for item in (group.get("resources") or {}).get("autoScalingGroups") or []]


def _launches(snapshot: Snapshot, subject: Subject, pod: Object) -> Outcome | None:
    """Judge by what AWS says: health of the node groups, and each group's newest launch."""
    groups = own_groups(snapshot, subject)
    failures: list[Outcome] = []
    going = ""
    for group in groups:
        issues = (group.get("health") or {}).get("issues") or []
        names = {"group": str(group["nodegroupName"]), "cluster": str(group.get("clusterName", ""))}
        for issue in issues:
            code, message = str(issue.get("code")), one_line(str(issue.get("message") or ""))
            runbook = HEALTH.get(code) or launch_runbook(f"{code} {message}", "node-group-unhealthy")
            if runbook == "node-never-joined":
                continue  # the next link's
            failures.append(broken(runbook, f"EKS of {names['group']}: {code}: {message}", **names))
        for scaling in _scaling_names(group):
            state, message = newest_launch(snapshot, scaling)
            if state == "Failed":
                evidence = f"Auto Scaling of {scaling}: {message}"
                failures.append(broken(launch_runbook(message), evidence, **{**names, "group": scaling}))
            elif state:
                going = f"Auto Scaling of {scaling}: {state}: {message}"
    if going and len(failures) < len(groups):
        return None  # another group of the pool launches, as a fallback does
    if groups and failures and (len(failures) >= len(groups) or not _triggered(snapshot, pod)):
        return failures[0]
    return None


def launch_runbook(message: str, otherwise: str = "launch-failed") -> str:
    """Return the runbook of AWS's reason for a failed launch."""
    return next((id_ for pattern, id_ in LAUNCH_FAILURES if re.search(pattern, message, re.IGNORECASE)), otherwise)


def newest_launch(snapshot: Snapshot, scaling_group: str) -> tuple[str, str]:
    """Return state and message of a group's newest launch of the last hour; empty where there was none."""
    for activity in snapshot.activities:
        if activity.get("AutoScalingGroupName") != scaling_group:
            continue
        if not str(activity.get("Description", "")).startswith("Launching"):
            continue
        if snapshot.since(activity.get("StartTime")) > _FRESH:
            return "", ""
        message = one_line(str(activity.get("StatusMessage") or activity.get("Description") or ""))
        state = str(activity.get("StatusCode"))
        return ("Failed" if state in ("Failed", "Cancelled") else state), message
    return "", ""


def _triggered(snapshot: Snapshot, pod: Object) -> Object | None:
    up, not_up = latest(snapshot, pod, "TriggeredScaleUp"), latest(snapshot, pod, "NotTriggerScaleUp")
    if up and not_up and str(happened(not_up)) > str(happened(up)):
        return None
    return up


def _autoscaler(snapshot: Snapshot, subject: Subject, pod: Object) -> Outcome | None:
    """Judge by the autoscaler's events, and by whether it runs."""
    if event := _triggered(snapshot, pod):
        waited = snapshot.since(happened(event))
        if waited < BOOTS:
            return waits(f"{text(event)}; a node boots since {span(waited)}")
        launched = [
            newest_launch(snapshot, name_) for g in own_groups(snapshot, subject) for name_ in _scaling_names(g)
        ]
        if any(state == "Successful" for state, _ in launched) or joins_never(snapshot, subject):
            return ok(f"{text(event)}; AWS has started an instance")
        if not snapshot.activities.known:
            return unread(snapshot.activities, f"{text(event)} {span(waited)} ago, and no node came; AWS")
        return unknown(f"{text(event)} {span(waited)} ago, and no node came; AWS reports no failed launch")
    if event := latest(snapshot, pod, "NotTriggerScaleUp"):
        return _refused(snapshot, subject, event)
    for deployment in snapshot.deployments:
        meta = deployment["metadata"]
        if "cluster-autoscaler" in meta["name"] and not (deployment.get("status") or {}).get("availableReplicas"):
            if snapshot.age(deployment) < _SETTLES:
                return waits(f"{name(deployment)} starts")
            evidence = f"{name(deployment)} has no available replica of {deployment['spec'].get('replicas', 1)}"
            return broken("autoscaler-down", evidence, name=str(meta["name"]), namespace=str(meta["namespace"]))
    if snapshot.age(pod) < _SETTLES:
        return waits(f"{name(pod)} waits for {span(snapshot.age(pod))}; the autoscaler has not decided yet")
    return None


def _refused(snapshot: Snapshot, subject: Subject, event: Object) -> Outcome:
    message = text(event)
    if re.search(r"max node group size reached|max cluster .*limit reached", message):
        present = len(pool_nodes(snapshot, subject.pool))
        return broken(
            "pool-at-max", f"{message}; pool {subject.pool.name} has {present} of {subject.pool.nodes.max} nodes"
        )
    if "in backoff after failed scale-up" in message:
        return broken("autoscaler-backs-off", message)
    if re.search(r"Insufficient nvidia\.com/gpu|Insufficient (cpu|memory|ephemeral-storage)", message):
        return broken("autoscaler-sees-no-fit", message)
    if re.search(r"didn't match Pod's node affinity|had untolerated taint", message):
        return broken("autoscaler-sees-no-fit", message)
    return unknown(
        message, "kubectl -n kube-system logs deployment/cluster-autoscaler-aws-cluster-autoscaler --tail 50"
    )


def joins_never(snapshot: Snapshot, subject: Subject) -> tuple[str, str] | None:
    """Return an instance that runs for long without a node, with the evidence."""
    for group in own_groups(snapshot, subject):
        for issue in (group.get("health") or {}).get("issues") or []:
            if issue.get("code") == "NodeCreationFailure":
                ids = ", ".join(map(str, issue.get("resourceIds") or [])) or "no instance named"
                message = one_line(str(issue.get("message") or ""))
                return ids, f"EKS of {group['nodegroupName']}: NodeCreationFailure: {message} ({ids})"
    known = {str(node["spec"].get("providerID", "")).rpartition("/")[2] for node in snapshot.nodes}
    names = {name_ for group in own_groups(snapshot, subject) for name_ in _scaling_names(group)}
    for scaling in snapshot.scaling_groups:
        for instance in scaling.get("Instances") or []:
            id_ = str(instance["InstanceId"])
            if scaling["AutoScalingGroupName"] not in names or id_ in known:
                continue
            launched = [a for a in snapshot.activities if id_ in str(a.get("Description", ""))]
            since = max((snapshot.since(a.get("EndTime") or a.get("StartTime")) for a in launched), default=timedelta())
            if instance.get("LifecycleState") == "InService" and since > BOOTS:
                return id_, f"instance {id_} of {scaling['AutoScalingGroupName']} runs for {span(since)} without a node"
    return None
