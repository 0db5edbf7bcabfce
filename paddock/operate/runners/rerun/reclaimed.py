"""Verdict on a node: whether AWS took it back. Pure, over the cluster's objects and what AWS says of instances."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

from paddock.errors import one_line
from paddock.operate.runners.rerun.decide import CLOCKS
from paddock.operate.runners.rerun.model import NodeVerdict, Placement
from paddock.operate.snapshot.model import Object, Snapshot, happened, moment
from paddock.operate.sources.aws_instances import GONE, Instance, Instances
from paddock.operate.why.links.evidence import ready
from paddock.operate.why.links.node import TAKEN_BACK

_INSTANCE = re.compile(r"/(i-[0-9a-f]+)$")
_NOTICE = timedelta(minutes=2)
"""From AWS's notice to the end of a Spot instance."""


def judge(snapshot: Snapshot, placement: Placement, instances: Instances) -> NodeVerdict:
    """Return whether the placement's node was taken back."""
    node = placement.node
    if event := _notice(snapshot, placement):
        text = one_line(f"{event.get('reason')}: {event.get('message') or ''}")
        reason = f"its node {node} was taken back: {text}"
        return NodeVerdict("taken-back", reason, _first(event), placement.instance)
    if not snapshot.nodes.known:
        unread = snapshot.nodes
        return NodeVerdict("unknown", f"nodes: {unread.reason}", None, "", unread.fix, unread.permission)
    there = _there(snapshot, placement)
    if there is not None and not placement.instance:
        placement = replace(placement, instance=instance_of(there))
    instance = _instance(placement, instances)
    if there is not None and ready(there) and not (instance and instance.taken_back):
        if there["spec"].get("unschedulable"):
            reason = f"its node {node} is still there and cordoned: it may be about to be removed"
            return NodeVerdict("unknown", reason, None, placement.instance, "run this again in a few minutes")
        return NodeVerdict("kept", f"its node {node} is still there", None, placement.instance)
    if instance is not None:
        return _of_instance(node, instance)
    if instances.error:
        error = instances.error
        reason = f"its node {node} is {'not ready' if there else 'gone'}, and EC2 does not say why: {error}"
        return NodeVerdict("unknown", reason, None, placement.instance, error.fix, error.permission)
    if placement.instance:
        reason = f"its node {node} was {placement.instance}, which EC2 does not list any more"
        return NodeVerdict("unknown", reason, None, placement.instance)
    if there is not None:
        return NodeVerdict("unknown", f"its node {node} is there and not ready, and names no instance")
    return _by_pool(snapshot, placement, instances)


def _notice(snapshot: Snapshot, placement: Placement) -> Object | None:
    """Return the first event on the node, since the pod came there, that says that it is being taken back."""
    events = snapshot.by_object.get(("Node", "", placement.node), [])
    return next(
        (
            event
            for event in events
            if event.get("reason") in TAKEN_BACK and (at := happened(event)) and at >= placement.since - CLOCKS
        ),
        None,
    )


def _there(snapshot: Snapshot, placement: Placement) -> Object | None:
    """Return the node if it is the one that the pod was on: names come again, with the address."""
    for node in snapshot.nodes:
        joined = moment(node["metadata"].get("creationTimestamp"))
        if node["metadata"]["name"] == placement.node and (joined is None or joined <= placement.since + CLOCKS):
            return node
    return None


def _instance(placement: Placement, instances: Instances) -> Instance | None:
    if placement.instance:
        return instances.get(placement.instance)
    named = [
        instance for instance in instances.items if instance.dns == placement.node and _was_there(instance, placement)
    ]
    return named[0] if len(named) == 1 else None


def _was_there(instance: Instance, placement: Placement) -> bool:
    """Return whether an instance ran when the pod came to its node."""
    if instance.launched and instance.launched > placement.since + CLOCKS:
        return False
    over = [time for time in (instance.request_at, instance.cause_at) if time and instance.ended]
    return not over or max(over) >= placement.since - CLOCKS


def _of_instance(node: str, instance: Instance) -> NodeVerdict:
    if instance.taken_back:
        reason = f"its node {node} ({instance.id}) was taken back: {instance.taken_back}"
        return NodeVerdict("taken-back", reason, _noticed(instance), instance.id)
    if instance.state == GONE and not instance.cause:
        return NodeVerdict("unknown", f"EC2 does not list {instance.id} of its node {node} any more")
    return NodeVerdict("kept", f"its node {node} ({instance.id}) was not taken back: {instance.why}", None, instance.id)


def _by_pool(snapshot: Snapshot, placement: Placement, instances: Instances) -> NodeVerdict:
    """Judge a node that is gone, and whose name EC2 has forgotten, by all instances that it can have been.

    EC2 drops the private DNS name of an instance that ends, and no event of a node names its instance.
    """
    joined = {instance_of(node) for node in snapshot.nodes}
    node, pool = placement.node, placement.pool
    if not pool:
        return NodeVerdict("unknown", f"its node {node} is gone, and did not belong to a pool")
    candidates = [
        instance
        for instance in instances.items
        if instance.pool == pool and instance.ended and _was_there(instance, placement)
    ]
    if not candidates:
        return NodeVerdict("unknown", f"its node {node} is gone, and EC2 lists no instance of {pool} that has ended")
    # A node that somebody deleted may be an instance that runs on.
    nodeless = [
        instance
        for instance in instances.items
        if instance.pool == pool
        and not instance.ended
        and instance.id not in joined
        and _was_there(instance, placement)
    ]
    if nodeless:
        runs_on = f"{nodeless[0].id} of {pool} runs without a node"
        return NodeVerdict("unknown", f"its node {node} is gone, and {runs_on}: that may be it")
    others = [instance for instance in candidates if not instance.taken_back]
    if len(others) == len(candidates) and all(instance.reason or instance.request for instance in others):
        shown = ", ".join(f"{instance.id}: {instance.why}" for instance in others[:3])
        return NodeVerdict("kept", f"its node {node} is gone, and no instance of {pool} was taken back ({shown})")
    if others:
        shown = ", ".join(f"{instance.id}: {instance.why}" for instance in others[:3])
        return NodeVerdict(
            "unknown",
            f"its node {node} is gone; of {len(candidates)} instances of {pool} that ended since it came there,"
            f" {len(others)} were not taken back ({shown}), and nothing says which of them it was",
            fix="run this with --watch, which sees the instances of nodes before they are gone",
        )
    times = [time for instance in candidates if (time := _noticed(instance))]
    first = min(times) if len(times) == len(candidates) else None
    shown = ", ".join(f"{instance.id}: {instance.taken_back}" for instance in candidates[:3])
    if len(candidates) == 1:
        reason = f"its node {node} is gone, and the one instance of {pool} that ended was taken back ({shown})"
        return NodeVerdict("taken-back", reason, first, candidates[0].id)
    every = f"each of the {len(candidates)} instances of {pool} that ended since it came there was taken back ({shown})"
    return NodeVerdict("taken-back", f"its node {node} is gone, and {every}", first)


def _noticed(instance: Instance) -> datetime | None:
    """Return when AWS first said that it takes an instance back, where a source names a time of that."""
    times = [instance.replaced_at]
    if instance.request_at and instance.request.startswith("marked-for-"):
        times.append(instance.request_at)
    elif instance.request_at:  # the end has overwritten the notice
        times.append(instance.request_at - _NOTICE)
    return min((time for time in times if time), default=None)


def instance_of(node: Object) -> str:
    """Return the EC2 instance of a node by its providerID, `aws:///us-west-2a/i-0123456789abcdef0`; else nothing."""
    match = _INSTANCE.search(str(node["spec"].get("providerID") or ""))
    return match[1] if match else ""


def _first(event: Object) -> datetime | None:
    return moment(event.get("firstTimestamp")) or happened(event)
