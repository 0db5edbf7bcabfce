"""From a waiting pod to a node that is there: node group, Auto Scaling activity, autoscaler.

The newest word on this pod counts: what the autoscaler decided, how AWS took it, and which nodes came of it. Nodes that
were there before explain a wait only where nothing newer does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from paddock.errors import one_line
from paddock.fleet import nodes
from paddock.kubernetes import pods
from paddock.operate.snapshot.model import Object, Snapshot, happened, name
from paddock.operate.why.links.evidence import SETTLES, condition, latest, ready, span, text, unavailable_for
from paddock.operate.why.links.launches import failed_launch, newest_launch, own_groups, scaling_names
from paddock.operate.why.objects import gpus_of, key_of, pool_nodes, used_by_node
from paddock.operate.why.outcome import Outcome, broken, ok, unknown, unread, waits
from paddock.operate.why.subject import Subject

BOOTS = timedelta(minutes=15)
"""Time that a GPU node gets from the request to being ready; cluster-autoscaler gives up after the same."""
_LEAVING = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")
"""Taints of nodes that cluster-autoscaler gives back: nobody waits for these."""
_ENOUGH = 1000
_AT_MAX = re.compile(r"max node group size reached")
_NO_FIT = re.compile(
    r"Insufficient (nvidia\.com/gpu|cpu|memory|ephemeral-storage)|didn't match Pod's node affinity"
    r"|had untolerated taint"
)
_LOG = "kubectl -n kube-system logs deployment/cluster-autoscaler-aws-cluster-autoscaler --tail 50"


def node_group(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether a node is bought for the pod, and why not."""
    item = subject.pod
    if item is None:
        return unknown("there is no pod")
    if node := item["spec"].get("nodeName"):
        return ok(f"it is on {node}")
    if not snapshot.nodes.known:
        return unread(snapshot.nodes, "nodes")
    bad, used = unfit_nodes(snapshot, subject), used_by_node(snapshot)
    fit = [node for node in pool_nodes(snapshot, subject.pool) if node not in bad and not _leaves(node)]
    free = next((node for node in fit if pods.fits(pods.requests(item), _free(node, used))), None)
    if free:
        return waits(f"{name(free)} has room, and the scheduler has not placed the pod yet")
    if snapshot.fleet.owns_nodes and not scale_up(snapshot, item) and (down := _autoscaler_down(snapshot)):
        return down  # with it, a node would be bought whatever the state of those that are there
    if blamed := blamed_nodes(snapshot, subject):
        return ok(f"{name(blamed[0])} of pool {subject.pool.name} is there, and cannot take it")
    if not snapshot.fleet.owns_nodes:
        return broken("pool-at-max", f"all {len(pool_nodes(snapshot, subject.pool))} nodes of the pool are in use")
    for outcome in (failed_launch(snapshot, subject, scale_up(snapshot, item)), _autoscaler(snapshot, subject, item)):
        if outcome:
            return outcome
    if not snapshot.activities.known:
        return unread(snapshot.activities, "node groups and their activities")
    return unknown("no event says what the autoscaler decided, and AWS reports no failed launch", _LOG)


def scale_up(snapshot: Snapshot, pod: Object) -> Object | None:
    """Return the event with which the autoscaler bought a node for a pod, unless it refused another one since."""
    up, refused = latest(snapshot, pod, "TriggeredScaleUp"), latest(snapshot, pod, "NotTriggerScaleUp")
    return None if up and refused and str(happened(refused)) > str(happened(up)) else up


def blamed_nodes(snapshot: Snapshot, subject: Subject) -> list[Object]:
    """Return the nodes for whose state the pod waits, the newest first.

    They would have room for it if they were well, and came of the autoscaler's last purchase; any of them where it
    bought none, and AWS refused none.
    """
    item, used = subject.pod, used_by_node(snapshot)
    bad = [
        node
        for node in unfit_nodes(snapshot, subject)
        if item is not None and pods.fits(pods.requests(item), _free(_mended(snapshot, node), used))
    ]
    if item is None or not bad:
        return []
    if up := scale_up(snapshot, item):
        since = snapshot.since(happened(up))
        return [node for node in bad if snapshot.age(node) <= since]
    if failed_launch(snapshot, subject, None):
        return []
    refused = latest(snapshot, item, "NotTriggerScaleUp")
    # A node that takes no pods still takes one of the places that the pool has.
    full = refused and _AT_MAX.search(text(refused)) and _size_at_max(snapshot, subject)
    return bad if full or not refused else []


def unfit_nodes(snapshot: Snapshot, subject: Subject) -> list[Object]:
    """Return the nodes of the pool that take no job in their state, the newest first."""

    def unfit(node: Object) -> bool:
        gpus = pods.amounts((node.get("status") or {}).get("allocatable")).get(nodes.GPU, 0)
        closed = not ready(node) or bool(node["spec"].get("unschedulable")) or _pressed(node)
        return closed or not gpus or _fewer(snapshot, node)

    present = [node for node in pool_nodes(snapshot, subject.pool) if not _leaves(node)]
    bad = [node for node in present if unfit(node) or _tainted(subject, node)]
    return sorted(bad, key=lambda node: str(node["metadata"].get("creationTimestamp")), reverse=True)


def _leaves(node: Object) -> bool:
    """Return whether cluster-autoscaler is giving a node back."""
    return any(taint["key"] in _LEAVING for taint in node["spec"].get("taints") or [])


def _fewer(snapshot: Snapshot, node: Object) -> bool:
    """Return whether the node offers fewer GPUs than it should."""
    offered, expected = gpus_of(snapshot.fleet, node)
    return offered < expected


def _pressed(node: Object) -> bool:
    return any(condition(node, f"{what}Pressure").get("status") == "True" for what in ("Disk", "Memory", "PID"))


def _tainted(subject: Subject, node: Object) -> bool:
    return subject.pod is not None and not pods.tolerates(subject.pod, node["spec"].get("taints") or [])


def _free(node: Object, used: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    has = pods.amounts((node.get("status") or {}).get("allocatable"))
    taken = used.get(str(node["metadata"]["name"]), {})
    return {key: amount - taken.get(key, 0) for key, amount in has.items()}


def _mended(snapshot: Snapshot, node: Object) -> Object:
    """Return a node with all its GPUs; one that counts none as if it had enough, since nothing says how many work."""
    status = node.get("status") or {}
    counted = pods.amounts(status.get("capacity")).get(nodes.GPU, 0)
    gpus = gpus_of(snapshot.fleet, node)[1] if counted else _ENOUGH
    return {**node, "status": {**status, "allocatable": {**(status.get("allocatable") or {}), nodes.GPU: str(gpus)}}}


def _autoscaler(snapshot: Snapshot, subject: Subject, pod: Object) -> Outcome | None:
    """Judge by the autoscaler's events."""
    if event := scale_up(snapshot, pod):
        waited = snapshot.since(happened(event))
        if waited < BOOTS:
            return waits(f"{text(event)}; a node has been booting for {span(waited)}")
        launched = [
            newest_launch(snapshot, own) for group in own_groups(snapshot, subject) for own in scaling_names(group)
        ]
        if any(state == "Successful" for state, _ in launched) or joins_never(snapshot, subject):
            return ok(f"{text(event)}; AWS has started an instance")
        if not snapshot.activities.known:
            return unread(snapshot.activities, f"{text(event)} {span(waited)} ago, and no node came; AWS")
        return unknown(f"{text(event)} {span(waited)} ago, and no node came; AWS reports no failed launch")
    if event := latest(snapshot, pod, "NotTriggerScaleUp"):
        return _refused(snapshot, subject, event)
    if snapshot.age(pod) < SETTLES:
        return waits(f"{name(pod)} waits for {span(snapshot.age(pod))}; the autoscaler has not decided yet")
    return None


def _autoscaler_down(snapshot: Snapshot) -> Outcome | None:
    for deployment in snapshot.deployments:
        namespace, own = key_of(deployment)
        if "cluster-autoscaler" in own and (since := unavailable_for(snapshot, deployment)) is not None:
            if since < SETTLES:
                return waits(f"{name(deployment)} starts")
            evidence = f"{name(deployment)} has no available replica of {deployment['spec'].get('replicas', 1)}"
            return broken("autoscaler-down", evidence, name=own, namespace=namespace)
    return None


def _refused(snapshot: Snapshot, subject: Subject, event: Object) -> Outcome:
    """Judge a refusal. Its message adds up the reasons of all node groups, and names none."""
    message = text(event)
    if _AT_MAX.search(message) and (size := _size_at_max(snapshot, subject)):
        return broken("pool-at-max", f"{message}; {size}")
    if "in backoff after failed scale-up" in message:
        return broken("autoscaler-backs-off", message)
    if _NO_FIT.search(message):
        return broken("autoscaler-sees-no-fit", message)
    return unknown(message, _LOG)


def _size_at_max(snapshot: Snapshot, subject: Subject) -> str:
    """Return the size of the pool where every node group of it has all the nodes that it may; else nothing."""
    own = {name_ for group in own_groups(snapshot, subject) for name_ in scaling_names(group)}
    groups = [group for group in snapshot.scaling_groups if group.get("AutoScalingGroupName") in own]
    if groups:
        sizes = [(int(group.get("DesiredCapacity") or 0), int(group.get("MaxSize") or 0)) for group in groups]
        if any(desired < most for desired, most in sizes):
            return ""
        return f"pool {subject.pool.name} has {', '.join(f'{desired} of {most}' for desired, most in sizes)} nodes"
    present = len(pool_nodes(snapshot, subject.pool))
    most = subject.pool.nodes.max * len(nodes.capacities(subject.pool))
    return f"pool {subject.pool.name} has {present} of {most} nodes" if present >= most else ""


def joins_never(snapshot: Snapshot, subject: Subject) -> tuple[str, str] | None:
    """Return an instance that runs for long without a node, with the evidence."""
    for group in own_groups(snapshot, subject):
        for issue in (group.get("health") or {}).get("issues") or []:
            if issue.get("code") == "NodeCreationFailure":
                ids = ", ".join(map(str, issue.get("resourceIds") or [])) or "no instance named"
                message = one_line(str(issue.get("message") or ""))
                return ids, f"EKS of {group['nodegroupName']}: NodeCreationFailure: {message} ({ids})"
    for scaling in snapshot.scaling_groups:
        own = {name_ for group in own_groups(snapshot, subject) for name_ in scaling_names(group)}
        if scaling.get("AutoScalingGroupName") not in own:
            continue
        for id_ in without_node(snapshot, scaling):
            since = running_for(snapshot, id_)
            if since > BOOTS:
                group_name = scaling["AutoScalingGroupName"]
                return id_, f"instance {id_} of {group_name} has been running for {span(since)} without a node"
    return None


def without_node(snapshot: Snapshot, scaling: Object) -> list[str]:
    """Return the instances of an Auto Scaling group that boot or serve, and are not nodes of the cluster."""
    known = {str(node["spec"].get("providerID", "")).rpartition("/")[2] for node in snapshot.nodes}
    up = (item for item in scaling.get("Instances") or [] if str(item.get("LifecycleState")).startswith(_UP))
    return [id_ for item in up if (id_ := str(item["InstanceId"])) not in known]


_UP = ("Pending", "InService")


def running_for(snapshot: Snapshot, instance: str) -> timedelta:
    """Return the time since an instance was launched; zero where no activity says it."""
    launched = [activity for activity in snapshot.activities if instance in str(activity.get("Description", ""))]
    times = (snapshot.since(activity.get("EndTime") or activity.get("StartTime"), "aws") for activity in launched)
    return max(times, default=timedelta())
