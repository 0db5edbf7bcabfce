"""Requests of pods, and the nodes where they may run, as scheduler and autoscaler see them. Pure functions.

Quantities are read here, because a cluster's objects hold every form of one (negative, exponents, thousandths of any
unit), and `paddock.fleet.model.quantity` accepts only those that a stack file may use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

Object = Mapping[str, Any]
Amounts = Mapping[str, int]
"""Resource -> thousandths of its unit: `{"cpu": 250, "nvidia.com/gpu": 1000}`."""

_SUFFIXES = {
    "": 1,
    "m": Decimal("0.001"),
    **{suffix: 1000**power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def quantity(value: str | int | float) -> int:
    """Return a Kubernetes quantity in thousandths, rounded up. Raises ValueError."""
    match = re.fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]{0,2})", str(value).strip())
    if not match or match[2] not in _SUFFIXES:
        raise ValueError(f"{value!r} is not a quantity")
    return int((Decimal(match[1]) * _SUFFIXES[match[2]] * 1000).to_integral_value(ROUND_CEILING))


def amounts(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """`resources.requests`, or a node's `allocatable`."""
    return {name: quantity(value) for name, value in (resources or {}).items()}


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def requests(pod: Object) -> dict[str, int]:
    """Return a pod's requests: of its containers and sidecars, or of its init containers where those need more."""
    spec = pod["spec"]
    sidecars: list[dict[str, int]] = []
    most: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        requested = _requests(container)
        # A sidecar runs on while the init containers after it do their work.
        moment = total([*sidecars, requested])
        most = {name: max(most.get(name, 0), moment.get(name, 0)) for name in {*most, *moment}}
        if container.get("restartPolicy") == "Always":
            sidecars.append(requested)
    work = total([*sidecars, *map(_requests, spec["containers"])])
    peak = {name: max(work.get(name, 0), most.get(name, 0)) for name in {*work, *most}}
    return {**total([peak, amounts(spec.get("overhead"))]), "pods": 1000}


def fits(requested: Amounts, free: Amounts) -> bool:
    return all(amount <= free.get(name, 0) for name, amount in requested.items() if amount)


def tolerates(pod: Object, taints: Iterable[Object]) -> bool:
    """Return whether a pod tolerates all of these taints that forbid scheduling."""
    tolerations = pod["spec"].get("tolerations") or []
    hard = (taint for taint in taints if taint["effect"] != "PreferNoSchedule")
    return all(any(_tolerated(taint, toleration) for toleration in tolerations) for taint in hard)


def selects(pod: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels matches the pod's selector and affinity."""
    spec = pod["spec"]
    if any(labels.get(name) != value for name, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not affinity:
        return True
    return any(
        all(_matches(rule, labels) for rule in term.get("matchExpressions") or [])
        for term in affinity["nodeSelectorTerms"]
        if term.get("matchExpressions")
    )


def is_unschedulable(pod: Object) -> bool:
    """Return whether the scheduler tried, and found no node for the pod."""
    if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
        return False
    conditions: Sequence[Object] = pod.get("status", {}).get("conditions") or []
    return any(
        condition["type"] == "PodScheduled"
        and condition["status"] == "False"
        and condition.get("reason") == "Unschedulable"
        for condition in conditions
    )


def unschedulable_reason(pod: Object) -> str:
    """Return the scheduler's reason why no node fits the pod."""
    conditions: Sequence[Object] = pod["status"]["conditions"]
    return clause(next(condition.get("message", "") for condition in conditions if condition["type"] == "PodScheduled"))


def clause(message: str) -> str:
    """Return the part of a scheduler's message that holds the reason."""
    return message.partition(" no new claims")[0].partition(" preemption:")[0].strip()


def occupies_node(pod: Object) -> bool:
    """Return whether the pod is on a node and has not ended."""
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def is_from_daemonset(pod: Object) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or [])


def name(pod: Object) -> str:
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def _requests(container: Object) -> dict[str, int]:
    resources = container.get("resources") or {}
    # The API server does this for pods that it stores, but not for templates.
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _tolerated(taint: Object, toleration: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or ""))


def _matches(rule: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(rule["key"]), rule.get("values") or []
    match rule["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                number, bound = int(value or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return number > bound if operator == "Gt" else number < bound
        case _:
            return False
