"""Effect of a changed field on its resource: replacement, update in place, or unknown.

The facts are in `paddock/plan/engine/resource_types.json`. A field that is not there is `unknown`, and shown so: a
reviewer who reads "unknown" checks, one who reads "in place" does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.plan.engine import resource_types as types

Effect = Literal["replace", "update", "unknown"]

AWS_PROVIDER = "pulumi:providers:aws"


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of a type as dotted paths of the document's names; a path speaks for all below it."""

    replace: frozenset[str]
    update: frozenset[str]


def _fields(replace: str, update: str = "") -> Fields:
    return Fields(frozenset(replace.split()), frozenset(update.split()))


TYPES: Mapping[str, Fields] = {
    type_: _fields(facts["replace"], facts["update"])
    for type_, facts in types.facts()["types"].items()
    if "replace" in facts
}

_REFERENCES: Mapping[tuple[str, str], str] = {
    (types.NODE_GROUP, "launchTemplate"): "launchTemplate.id",
    (types.CLUSTER, "kubernetesNetworkConfig"): "kubernetesNetworkConfig.elasticLoadBalancing",
}
"""Where in a field with parts the id of another resource is."""

ROLLING = frozenset({"launchTemplate.version", "releaseVersion", "version"})
"""Fields of a node group that EKS applies by replacing every node, in place of the group."""

SCALE_SET_LABELS = "values.scaleSetLabels"
"""Of a runner scale set's release. GitHub takes labels only when a set is made, so the program replaces it."""


def effect(type_: str, keys: Sequence[str]) -> Effect:
    """Return the effect of a change at this path. The longest path that is listed decides."""
    type_fields = TYPES.get(type_, _KUBERNETES_OBJECT if type_.startswith("kubernetes:") else None)
    if type_fields is None:
        return "unknown"
    for length in range(len(keys), 0, -1):
        path = ".".join(keys[:length])
        if path in type_fields.replace:
            return "replace"
        if path in type_fields.update:
            return "update"
    return "unknown"


def reference(type_: str, field: str) -> tuple[str, ...]:
    """Return the path in `field` that names another resource."""
    if field == "metadata" and type_.startswith("kubernetes:"):
        return ("metadata", "namespace")
    return tuple(_REFERENCES.get((type_, field), field).split("."))


def makes_version(field: str) -> bool:
    """Return whether a change of this field of a launch template makes a new version of it."""
    return field in _VERSIONED


_KUBERNETES_OBJECT = _fields("metadata.name metadata.namespace", "metadata.annotations metadata.labels")
_VERSIONED = TYPES[types.LAUNCH_TEMPLATE].update - {"defaultVersion", "updateDefaultVersion", "tags"}
