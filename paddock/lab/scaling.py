"""What an autoscaler decides: which group buys a node for the pods that wait, and which nodes are given back.

A small stand-in for cluster-autoscaler, which reads a node group that has no node yet from the tags of its Auto
Scaling group: what a tag gets wrong here keeps a pod waiting here, as it would there. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from paddock.lab import pods
from paddock.lab.pods import Amounts, Object

_TAG = "k8s.io/cluster-autoscaler/"
_ORDER = {"reserved": 0, "capacity-block": 0, "spot": 1, "on-demand": 2}
"""Which way of buying is tried first: what is paid for already, then what is cheap."""
_PASSING = {"node.kubernetes.io/not-ready", "node.kubernetes.io/network-unavailable"}
"""Taints that a node loses by itself while it starts."""
TO_BE_DELETED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "lab", "effect": "NoSchedule"}
_PODS = "110"
"""Where no tag says it."""


@dataclass(frozen=True, slots=True)
class Template:
    """A node that is not there, as its group's tags describe it."""

    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    resources: Amounts


@dataclass(frozen=True, slots=True)
class Group:
    """One node group: how the tags describe its nodes, and what really boots."""

    name: str
    pool: str
    capacity: str
    min: int
    max: int
    tags: Mapping[str, str]
    node: Mapping[str, Any] = field(default_factory=dict)
    """The Node object that registers, without a name."""

    @property
    def template(self) -> Template:
        return template(self.tags)

    @property
    def managed(self) -> bool:
        """Whether the autoscaler may touch it."""
        return self.tags.get(f"{_TAG}enabled") == "true"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now."""

    grow: tuple[str, ...] = ()
    """Names of groups, once for each node that they buy."""
    shrink: tuple[str, ...] = ()
    """Nodes that are given back."""
    unserved: Mapping[str, str] = field(default_factory=dict)
    """Pods that no group can help -> why."""


def template(tags: Mapping[str, str]) -> Template:
    """What the tags of an Auto Scaling group say of its nodes."""

    def under(part: str) -> dict[str, str]:
        prefix = f"{_TAG}node-template/{part}/"
        return {key.removeprefix(prefix): value for key, value in tags.items() if key.startswith(prefix)}

    taints = []
    for key, text in under("taint").items():
        value, _, effect = text.rpartition(":")
        taints.append({"key": key, "value": value, "effect": effect})
    return Template(under("label"), tuple(taints), pods.amounts({"pods": _PODS, **under("resources")}))


def decide(
    groups: Sequence[Group],
    nodes: Sequence[Object],
    all_pods: Sequence[Object],
    *,
    booting: Sequence[str] = (),
    daemonsets: Sequence[Object] = (),
    idle: Mapping[str, float] | None = None,
    now: float = 0.0,
    idle_seconds: float = 600.0,
) -> Decision:
    """What to do for these pods. `booting` names groups, once for each node under way; `idle`: node -> since when."""
    managed = sorted((group for group in groups if group.managed), key=lambda group: (_order(group), group.name))
    sizes = {group.name: booting.count(group.name) + len(members(nodes, group.name)) for group in managed}
    room = [_room_of(node, all_pods) for node in nodes if not node["spec"].get("unschedulable")]
    by_name = {group.name: group for group in managed}
    room += [_room_in(by_name[name], daemonsets) for name in booting if name in by_name]
    grow: list[str] = []

    def buy(group: Group) -> _Room:
        grow.append(group.name)
        sizes[group.name] += 1
        room.append(_room_in(group, daemonsets))
        return room[-1]

    for group in managed:
        while sizes[group.name] < group.min:
            buy(group)
    unserved = {}
    for pod in sorted(filter(pods.waits_for_room, all_pods), key=_urgency):
        asked = pods.requests(pod)
        if any(each.take(pod, asked) for each in room):
            continue
        could = [group for group in managed if _room_in(group, daemonsets).take(pod, asked)]
        chosen = next((group for group in could if sizes[group.name] < group.max), None)
        if chosen:
            buy(chosen).take(pod, asked)
        else:
            full = ", ".join(f"{group.name} has its {group.max}" for group in could)
            unserved[pods.name(pod)] = full or "it fits no node group"
    shrink = _idle_for(managed, nodes, idle or {}, now - idle_seconds, sizes)
    # While pods wait for nodes that are about to come, none is given back.
    return Decision(tuple(grow), () if grow else shrink, unserved)


def members(nodes: Iterable[Object], group: str) -> list[str]:
    """Nodes of a group."""
    label = "eks.amazonaws.com/nodegroup"
    return [node["metadata"]["name"] for node in nodes if (node["metadata"].get("labels") or {}).get(label) == group]


def idle_since(
    nodes: Iterable[Object], all_pods: Iterable[Object], before: Mapping[str, float], now: float
) -> dict[str, float]:
    """Since when each node has run nothing but DaemonSets' pods."""
    busy = {pod["spec"]["nodeName"] for pod in all_pods if pods.holds_room(pod) and not pods.of_daemonset(pod)}
    names = (node["metadata"]["name"] for node in nodes)
    return {name: before.get(name, now) for name in names if name not in busy}


def document(groups: Iterable[Group]) -> list[dict[str, Any]]:
    """Groups as JSON."""
    return [asdict(group) for group in groups]


class _Room:
    """A node, there or not, and what is left of it."""

    def __init__(self, labels: Mapping[str, str], taints: Iterable[Object], free: Amounts) -> None:
        self.labels, self.taints, self.free = labels, tuple(taints), dict(free)

    def take(self, pod: Object, asked: Amounts) -> bool:
        """Puts the pod there if it may go there and fits."""
        if not (pods.fits(asked, self.free) and pods.selects(pod, self.labels) and pods.tolerates(pod, self.taints)):
            return False
        self.free = pods.total([self.free, {name: -amount for name, amount in asked.items()}])
        return True


def _room_of(node: Object, all_pods: Iterable[Object]) -> _Room:
    name = node["metadata"]["name"]
    taken = [pods.requests(pod) for pod in all_pods if pods.holds_room(pod) and pod["spec"]["nodeName"] == name]
    free = pods.amounts(node["status"].get("allocatable"))
    left = pods.total([free, *({each: -amount for each, amount in pod.items()} for pod in taken)])
    taints = (taint for taint in node["spec"].get("taints") or [] if taint["key"] not in _PASSING)
    return _Room(node["metadata"].get("labels") or {}, taints, left)


def _room_in(group: Group, daemonsets: Iterable[Object]) -> _Room:
    described = group.template
    room = _Room(described.labels, described.taints, described.resources)
    for daemonset in daemonsets:
        pod = daemonset["spec"]["template"]
        room.take(pod, pods.requests(pod))
    return room


def _idle_for(
    groups: Sequence[Group], nodes: Sequence[Object], idle: Mapping[str, float], until: float, sizes: Mapping[str, int]
) -> tuple[str, ...]:
    found: list[str] = []
    for group in groups:
        over = [name for name in members(nodes, group.name) if idle.get(name, until + 1) <= until]
        found += over[: max(0, sizes[group.name] - group.min)]
    return tuple(found)


def _order(group: Group) -> int:
    return _ORDER.get(group.capacity, len(_ORDER))


def _urgency(pod: Object) -> tuple[int, str, str]:
    return (-int(pod["spec"].get("priority") or 0), pod["metadata"].get("creationTimestamp") or "", pods.name(pod))
