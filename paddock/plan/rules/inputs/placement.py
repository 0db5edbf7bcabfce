"""Placement of workloads on nodes, as far as a plan shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.fleet.nodes import EKS_EFFECTS
from paddock.plan import fields
from paddock.plan.engine.graph import Resource
from paddock.plan.engine.resource_types import DAEMON_SET, NODE_GROUP, RELEASE
from paddock.plan.rules.base import Context
from paddock.plan.rules.inputs.pods import chart, pods

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Workload:
    """Something that has to get onto nodes."""

    resource: Resource
    what: str
    tolerations: list[Any]
    selector: Mapping[str, Any]
    terms: list[Any]
    """nodeSelectorTerms of its required affinity."""
    daemon: bool
    """Whether it belongs on every GPU node rather than on some node."""


_DAEMONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "nvidia-device-plugin": {"device plugin": (), "feature discovery": ("nfd", "worker")},
    "dcgm-exporter": {"exporter": ()},
}
_SELECTED = {
    "nvidia-device-plugin": (("nfd", "master"), ("nfd", "gc")),
    "cluster-autoscaler": ((),),
    "kuberay-operator": ((),),
    "gha-runner-scale-set-controller": ((),),
}
"""Where charts say which nodes their Deployments run on."""


def _workload(item: Resource, label: str, spec: Any, daemon: bool) -> Workload:
    required = fields.get(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return Workload(
        item,
        label,
        fields.as_list(fields.get(spec, "tolerations")),
        fields.mapping(spec, "nodeSelector"),
        fields.items(required, "nodeSelectorTerms"),
        daemon,
    )


def workloads(context: Context) -> Iterable[Workload]:
    """Return everything of the plan that has to get onto nodes."""
    return context.once(_workloads)


def _workloads(context: Context) -> Iterator[Workload]:
    for release in context.all(RELEASE):
        if fields.is_unknown(fields.get(release.inputs, "values")):
            continue
        for label, path in _DAEMONS.get(chart(release), {}).items():
            yield _workload(release, label, fields.get(release.inputs, "values", *path), daemon=True)
        for path in _SELECTED.get(chart(release), ()):
            yield _workload(
                release, path[-1] if path else "controller", fields.get(release.inputs, "values", *path), daemon=False
            )
    for pod in pods(context):
        gpu = any(GPU in key for key in (*fields.mapping(pod.spec, "nodeSelector"), *_tolerated(pod.spec)))
        daemon = pod.resource.type == DAEMON_SET and gpu
        yield _workload(pod.resource, pod.where.removeprefix("its "), pod.spec, daemon=daemon)


def _tolerated(spec: Any) -> list[str]:
    return [fields.text(toleration, "key") for toleration in fields.items(spec, "tolerations")]


def tolerates(tolerations: list[Any], taint: Mapping[str, Any]) -> bool:
    """Kubernetes' own matching of a list of tolerations against one taint."""
    if fields.has_unknown(tolerations) or fields.has_unknown(taint):
        return True
    for toleration in tolerations:
        key, value = fields.get(toleration, "key"), fields.get(toleration, "value")
        effect = fields.get(toleration, "effect")
        exists = fields.get(toleration, "operator") == "Exists"
        if (
            (key == taint.get("key") or (exists and not key))
            and (exists or (value or "") == (taint.get("value") or ""))
            and (not effect or effect == taint.get("effect"))
        ):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Group:
    """A node group, with what decides which pods its nodes take."""

    resource: Resource
    labels: Mapping[str, Any]
    taints: list[dict[str, Any]]
    """In Kubernetes' spelling."""

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def gpu(self) -> bool:
        """Return whether only pods for GPUs come onto its nodes."""
        return any(taint.get("key") == GPU for taint in self.taints)


def taints(group: Resource) -> list[dict[str, Any]]:
    """Return a node group's taints in Kubernetes' spelling."""
    return [
        {**taint, "effect": EKS_EFFECTS.get(str(taint.get("effect")), str(taint.get("effect")))}
        for taint in fields.items(group.inputs, "taints")
        if isinstance(taint, Mapping)
    ]


def node_groups(context: Context) -> NodeGroups:
    """Return the plan's node groups, read once."""
    (groups,) = context.once(_node_groups)
    return groups


def _node_groups(context: Context) -> Iterator[NodeGroups]:
    yield NodeGroups(
        Group(group, fields.mapping(group.inputs, "labels"), taints(group)) for group in context.all(NODE_GROUP)
    )


class NodeGroups:
    """Node groups by their labels, so that a workload is compared with few of them."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.all = tuple(groups)
        self.gpus = tuple(group for group in self.all if group.gpu)
        self._unknown: set[int] = set()
        self._by_label: dict[tuple[str, str], set[int]] = {}
        for index, group in enumerate(self.all):
            if fields.has_unknown(group.labels):
                self._unknown.add(index)
            for label in group.labels.items():
                if isinstance(label[1], str):
                    self._by_label.setdefault(label, set()).add(index)

    def candidates(self, work: Workload) -> list[Group]:
        """Return the groups that have the selector's rarest label or unknown ones: no other `fits`."""
        chosen = [
            self._by_label.get((key, value), set()) for key, value in work.selector.items() if isinstance(value, str)
        ]
        if not chosen or fields.has_unknown(work.selector) or fields.has_unknown(work.terms):
            return list(self.all)
        return [self.all[index] for index in sorted(min(chosen, key=len) | self._unknown)]


def fits(work: Workload, node_labels: Mapping[str, Any]) -> bool | None:
    """Return whether a node with these labels is one that the workload selects; None where that is not known yet."""
    if fields.has_unknown(work.selector) or fields.has_unknown(work.terms) or fields.has_unknown(node_labels):
        return None
    if any(node_labels.get(key) != value for key, value in work.selector.items()):
        return False
    return not work.terms or any(
        all(_matches(e, node_labels) for e in fields.items(term, "matchExpressions")) for term in work.terms
    )


def _matches(expression: Any, node_labels: Mapping[str, Any]) -> bool:
    key, values = fields.text(expression, "key"), fields.items(expression, "values")
    match fields.get(expression, "operator"):
        case "In":
            return node_labels.get(key) in values
        case "NotIn":
            return node_labels.get(key) not in values
        case "Exists":
            return key in node_labels
        case "DoesNotExist":
            return key not in node_labels
        case _:
            return True


def left_out(work: Workload, node_labels: Mapping[str, Any]) -> bool:
    """Return whether a daemon leaves these nodes out on purpose: a NotIn or DoesNotExist says so."""
    return any(
        fields.get(e, "operator") in ("NotIn", "DoesNotExist") and not _matches(e, node_labels)
        for term in work.terms
        for e in fields.items(term, "matchExpressions")
    )
