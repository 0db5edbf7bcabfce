"""Resource types by cost: priced in the estimate, paid by use, or free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paddock.plan.engine import resource_types
from paddock.plan.engine.graph import Graph

Kind = Literal["priced", "free", "unpriced"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Resources of one type. `names` are those that the estimate leaves out."""

    type: str
    count: int
    kind: Kind
    why: str
    names: tuple[str, ...] = ()


def classify(type_: str) -> tuple[Kind, str]:
    """Return whether a type costs money of its own, and why. An unlisted type is unpriced, and says so."""
    facts = resource_types.facts()
    if cost := facts["types"].get(type_, {}).get("cost"):
        kind, why = cost
        return kind, why
    for prefix, why in facts["free_prefixes"].items():
        if type_.startswith(prefix):
            return "free", why
    return "unpriced", "its cost has not been looked up"


def census(graph: Graph, left_out: Mapping[str, str]) -> tuple[Entry, ...]:
    """Every type that a provider makes, by name. `left_out`: URN -> why a resource of a priced type has no price."""
    names: dict[tuple[str, Kind, str], list[str]] = {}
    for resource in graph.resources.values():
        if not resource.custom or resource.type.startswith("pulumi:"):  # providers and stack references
            continue
        kind, why = classify(resource.type)
        if resource.urn in left_out:
            kind, why = "unpriced", left_out[resource.urn]
        if resource.type == "aws:ec2/vpcEndpoint:VpcEndpoint" and resource.inputs.get("vpcEndpointType") == "Gateway":
            kind, why = "free", "gateway endpoints"
        names.setdefault((resource.type, kind, why), []).append(resource.name)
    return tuple(
        Entry(type_, len(of_type), kind, why, tuple(of_type) if kind == "unpriced" else ())
        for (type_, kind, why), of_type in sorted(names.items())
    )
