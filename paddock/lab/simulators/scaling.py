"""Decisions of an autoscaler: which group adds a node for pending pods, and which nodes are removed.

A small stand-in for cluster-autoscaler, which knows a node group that has no node yet from eks:DescribeNodegroup: its
labels, its taints, and its tags for resources. What these get wrong keeps a pod waiting here, as it would there. Pure
functions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from paddock.fleet.nodes import EKS_EFFECTS, GPU, TEMPLATE
from paddock.kubernetes import pods
from paddock.kubernetes.pods import Amounts, Object
from paddock.lab.simulators.boot import UNINITIALIZED

NODE_GROUP = "eks.amazonaws.com/nodegroup"
_TRANSIENT_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/network-unavailable", UNINITIALIZED["key"]}
"""Taints that a node loses by itself while it starts."""
ACCELERATOR = "k8s.amazonaws.com/accelerator"
"""Label of a node that will have GPUs, on AWS: cluster-autoscaler waits for them where it sees it."""
TO_BE_DELETED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "lab", "effect": "NoSchedule"}
_PODS = "110"
"""Where no tag says it."""


@dataclass(frozen=True, slots=True)
class Template:
    """A node that is not there, as its group describes it."""

    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    resources: Amounts


@dataclass(frozen=True, slots=True)
class Group:
    """One node group: how it describes its nodes to EKS, and what really boots."""

    name: str
    pool: str
    capacity: str
    min: int
    max: int
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    """As EKS spells them."""
    tags: Mapping[str, str] = field(default_factory=dict)
    node: Mapping[str, Any] = field(default_factory=dict)
    """The Node object that registers, without a name."""
    priority: int = 0
    """Of two that would do, the higher one buys."""
    boot_seconds: float = 0.0
    """From the request to the node's registration."""
    plugin_seconds: float = 0.0
    """From there, with its device plugin, to its GPUs."""

    @property
    def template(self) -> Template:
        """The node that the autoscaler imagines while the group is empty."""
        taints = tuple({**taint, "effect": EKS_EFFECTS[taint["effect"]]} for taint in self.taints)
        resources = {k.removeprefix(TEMPLATE): v for k, v in self.tags.items() if k.startswith(TEMPLATE)}
        return Template(self.labels, taints, pods.amounts({"pods": _PODS, **resources}))


@dataclass(frozen=True, slots=True)
class Backoff:
    """A group that got no capacity is passed over: each time for twice as long, until it gets some."""

    until: float
    seconds: float

    @classmethod
    def after(cls, before: Backoff | None, now: float, first: float, longest: float) -> Backoff:
        """Return the backoff that begins now. `first`, `longest`: seconds."""
        seconds = first if before is None else min(2 * before.seconds, longest)
        return cls(now + seconds, seconds)


@dataclass(frozen=True, slots=True)
class Decision:
    """Nodes to add and to remove."""

    grow: tuple[str, ...] = ()
    """Names of groups, once for each node to add."""
    served: Mapping[str, str] = field(default_factory=dict)
    """Pods for which a node is added -> its group."""
    shrink: tuple[str, ...] = ()
    """Nodes to remove."""
    unserved: Mapping[str, str] = field(default_factory=dict)
    """Pods that no group can help -> why."""


def decide(
    groups: Sequence[Group],
    nodes: Sequence[Object],
    all_pods: Sequence[Object],
    *,
    booting: Sequence[str] = (),
    daemonsets: Sequence[Object] = (),
    without: Collection[str] = (),
    idle: Mapping[str, float] | None = None,
    now: float = 0.0,
    idle_seconds: float = 600.0,
) -> Decision:
    """Decide which nodes to add and remove for these pods.

    `booting` names groups, once for each node under way; `without` those that got no capacity a moment ago; `idle`:
    node -> since when.
    """
    ranked = sorted(groups, key=lambda group: (-group.priority, group.name))
    sizes = {group.name: booting.count(group.name) + len(members(nodes, group.name)) for group in ranked}
    by_name = {group.name: group for group in ranked}
    # A node without its GPUs yet counts with what its group promises, like one that is still booting.
    here = [node for node in nodes if not node["spec"].get("unschedulable")]
    coming = [group for node in here if starting(node) and (group := by_name.get(group_of(node)))]
    room = [_remaining_capacity(node, all_pods) for node in here if not (starting(node) and group_of(node) in by_name)]
    room += [_template_capacity(group, daemonsets) for group in coming]
    room += [_template_capacity(by_name[name], daemonsets) for name in booting if name in by_name]
    grow: list[str] = []
    bought: dict[int, str] = {}

    def buy(group: Group) -> _NodeCapacity:
        grow.append(group.name)
        sizes[group.name] += 1
        room.append(_template_capacity(group, daemonsets))
        bought[id(room[-1])] = group.name
        return room[-1]

    for group in ranked:
        while sizes[group.name] < group.min and group.name not in without:
            buy(group)
    served, unserved = {}, {}
    for pod in sorted(filter(pods.is_unschedulable, all_pods), key=_urgency):
        requested = pods.requests(pod)
        host = next((node for node in room if node.take(pod, requested)), None)
        if host is not None:
            if id(host) in bought:
                served[pods.name(pod)] = bought[id(host)]
            continue
        candidates = [group for group in ranked if _template_capacity(group, daemonsets).take(pod, requested)]
        why = {
            group.name: "gets no capacity" if group.name in without else f"has its {group.max}"
            for group in candidates
            if group.name in without or sizes[group.name] >= group.max
        }
        chosen = next((group for group in candidates if group.name not in why), None)
        if chosen:
            buy(chosen).take(pod, requested)
            served[pods.name(pod)] = chosen.name
        else:
            reasons = ", ".join(f"{name} {reason}" for name, reason in why.items())
            unserved[pods.name(pod)] = reasons or "it fits no node group"
    shrink = _idle_for(ranked, nodes, idle or {}, now - idle_seconds, sizes)
    # While pods wait for nodes that are booting, none is removed.
    return Decision(tuple(grow), served, () if grow else shrink, unserved)


def priority(expander: str, scaling_group: str) -> int:
    """Return the priority of an Auto Scaling group in the priority expander's configuration; 0 without one."""
    ranks = yaml.safe_load(expander) or {}
    return max(
        (int(rank) for rank, names in ranks.items() if any(re.search(n, scaling_group) for n in names)), default=0
    )


def group_of(node: Object) -> str:
    """Name of the group that a node is of; empty for none."""
    return str((node["metadata"].get("labels") or {}).get(NODE_GROUP, ""))


def members(nodes: Iterable[Object], group: str) -> list[str]:
    """Nodes of a group."""
    return [node["metadata"]["name"] for node in nodes if group_of(node) == group]


def starting(node: Object) -> bool:
    """Return whether cluster-autoscaler counts a node as still starting."""
    taints = {taint["key"] for taint in node["spec"].get("taints") or []}
    has_gpus = pods.amounts(node["status"].get("allocatable")).get(GPU, 0) > 0
    return bool(taints & _TRANSIENT_TAINTS) or (ACCELERATOR in (node["metadata"].get("labels") or {}) and not has_gpus)


def idle_since(
    nodes: Iterable[Object], all_pods: Iterable[Object], before: Mapping[str, float], now: float
) -> dict[str, float]:
    """Since when each node that has started runs nothing but DaemonSets' pods."""
    busy = {pod["spec"]["nodeName"] for pod in all_pods if pods.occupies_node(pod) and not pods.is_from_daemonset(pod)}
    names = (node["metadata"]["name"] for node in nodes if not starting(node))
    return {name: before.get(name, now) for name in names if name not in busy}


class _NodeCapacity:
    """A node, real or planned, and its free resources."""

    def __init__(self, labels: Mapping[str, str], taints: Iterable[Object], free: Amounts) -> None:
        self.labels, self.taints, self.free = labels, tuple(taints), dict(free)

    def take(self, pod: Object, requested: Amounts) -> bool:
        """Reserve the pod's requests if it may run here and fits."""
        if not (
            pods.fits(requested, self.free) and pods.selects(pod, self.labels) and pods.tolerates(pod, self.taints)
        ):
            return False
        self.free = pods.total([self.free, {name: -amount for name, amount in requested.items()}])
        return True


def _remaining_capacity(node: Object, all_pods: Iterable[Object]) -> _NodeCapacity:
    name = node["metadata"]["name"]
    used = [pods.requests(pod) for pod in all_pods if pods.occupies_node(pod) and pod["spec"]["nodeName"] == name]
    free = pods.amounts(node["status"].get("allocatable"))
    remaining = pods.total([free, *({name: -amount for name, amount in pod.items()} for pod in used)])
    taints = (taint for taint in node["spec"].get("taints") or [] if taint["key"] not in _TRANSIENT_TAINTS)
    return _NodeCapacity(node["metadata"].get("labels") or {}, taints, remaining)


def _template_capacity(group: Group, daemonsets: Iterable[Object]) -> _NodeCapacity:
    described = group.template
    room = _NodeCapacity(described.labels, described.taints, described.resources)
    for daemonset in daemonsets:
        pod = daemonset["spec"]["template"]
        room.take(pod, pods.requests(pod))
    return room


def _idle_for(
    groups: Sequence[Group], nodes: Sequence[Object], idle: Mapping[str, float], until: float, sizes: Mapping[str, int]
) -> tuple[str, ...]:
    names: list[str] = []
    for group in groups:
        idle_nodes = [name for name in members(nodes, group.name) if idle.get(name, until + 1) <= until]
        names += idle_nodes[: max(0, sizes[group.name] - group.min)]
    return tuple(names)


def _urgency(pod: Object) -> tuple[int, str, str]:
    return (-int(pod["spec"].get("priority") or 0), pod["metadata"].get("creationTimestamp") or "", pods.name(pod))
