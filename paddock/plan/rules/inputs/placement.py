"""Which workloads get onto which nodes, as far as a plan tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.plan.engine.graph import Resource
from paddock.plan.rules.base import Context
from paddock.plan.rules.inputs import access
from paddock.plan.rules.inputs.pods import DAEMON_SET, RELEASE, chart, pods

GPU = "nvidia.com/gpu"
EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
"""EKS's spelling -> Kubernetes' own."""


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
    "gha-runner-scale-set-controller": ((),),
}
"""Where charts say which nodes their Deployments run on."""


def _workload(made: Resource, what: str, spec: Any, daemon: bool) -> Workload:
    required = access.at(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return Workload(
        made,
        what,
        access.many(access.at(spec, "tolerations")),
        access.pairs(spec, "nodeSelector"),
        access.each(required, "nodeSelectorTerms"),
        daemon,
    )


def workloads(context: Context) -> Iterator[Workload]:
    for release in context.all(RELEASE):
        if access.unknown(access.at(release.inputs, "values")):
            continue
        for what, path in _DAEMONS.get(chart(release), {}).items():
            yield _workload(release, what, access.at(release.inputs, "values", *path), daemon=True)
        for path in _SELECTED.get(chart(release), ()):
            yield _workload(
                release, path[-1] if path else "controller", access.at(release.inputs, "values", *path), daemon=False
            )
    for pod in pods(context):
        gpu = any(GPU in key for key in (*access.pairs(pod.spec, "nodeSelector"), *_tolerated(pod.spec)))
        daemon = pod.resource.type == DAEMON_SET and gpu
        yield _workload(pod.resource, pod.where.removeprefix("its "), pod.spec, daemon=daemon)


def _tolerated(spec: Any) -> list[str]:
    return [access.text(toleration, "key") for toleration in access.each(spec, "tolerations")]


def tolerates(tolerations: list[Any], taint: Mapping[str, Any]) -> bool:
    """Kubernetes' own matching of a list of tolerations against one taint."""
    if access.unsure(tolerations) or access.unsure(taint):
        return True
    for toleration in tolerations:
        key, value = access.at(toleration, "key"), access.at(toleration, "value")
        effect = access.at(toleration, "effect")
        exists = access.at(toleration, "operator") == "Exists"
        if (
            (key == taint.get("key") or (exists and not key))
            and (exists or (value or "") == (taint.get("value") or ""))
            and (not effect or effect == taint.get("effect"))
        ):
            return True
    return False


def taints(group: Resource) -> list[dict[str, Any]]:
    """A node group's taints in Kubernetes' spelling."""
    return [
        {**taint, "effect": EFFECTS.get(str(taint.get("effect")), str(taint.get("effect")))}
        for taint in access.each(group.inputs, "taints")
        if isinstance(taint, Mapping)
    ]


def labels(group: Resource) -> dict[str, Any]:
    return access.pairs(group.inputs, "labels")


def repelling(group: Resource) -> list[dict[str, Any]]:
    return [taint for taint in taints(group) if taint.get("effect") != "PreferNoSchedule"]


def fits(work: Workload, found: Mapping[str, Any]) -> bool | None:
    """Whether a node with these labels is one that the workload selects; None where that is not known yet."""
    if access.unsure(work.selector) or access.unsure(work.terms) or access.unsure(found):
        return None
    if any(found.get(key) != value for key, value in work.selector.items()):
        return False
    return not work.terms or any(
        all(_matches(e, found) for e in access.each(term, "matchExpressions")) for term in work.terms
    )


def _matches(expression: Any, found: Mapping[str, Any]) -> bool:
    key, values = access.text(expression, "key"), access.each(expression, "values")
    match access.at(expression, "operator"):
        case "In":
            return found.get(key) in values
        case "NotIn":
            return found.get(key) not in values
        case "Exists":
            return key in found
        case "DoesNotExist":
            return key not in found
        case _:
            return True


def left_out(work: Workload, found: Mapping[str, Any]) -> bool:
    """Whether a daemon leaves these nodes out on purpose: a NotIn or DoesNotExist says so."""
    return any(
        access.at(e, "operator") in ("NotIn", "DoesNotExist") and not _matches(e, found)
        for term in work.terms
        for e in access.each(term, "matchExpressions")
    )
