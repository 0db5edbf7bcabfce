"""Policies for the one who runs `pulumi up`, written for the resources of one plan.

What the fleet names, or Pulumi names with a known beginning, is named: roles, the cluster, repositories, log groups.
Of VPCs, their parts and keys AWS makes the names, so those rights end at the region.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from paddock.catalog.limits import limit
from paddock.fleet import Fleet
from paddock.init.permissions import table
from paddock.init.permissions.table import Row
from paddock.plan.engine.graph import Graph, Resource

LARGEST = limit("iam.managed-policy-size")
"""Characters of a managed policy, white space apart."""
MOST_POLICIES = limit("iam.managed-policies")
"""Managed policies of a role or user where nobody asked AWS for more."""
_GLOBAL = frozenset({"iam", "ce", "sts"})
"""Services that are not of a region, or answer from one of their own."""
_SERVICE_ROLES = "arn:aws:iam::*:role/aws-service-role/*"


@dataclass(frozen=True, slots=True)
class Statement:
    """One permission."""

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: Mapping[str, Mapping[str, Any]] | None = None

    def document(self) -> dict[str, Any]:
        body = {"Effect": "Allow", "Action": list(self.actions), "Resource": list(self.resources)}
        return body | ({"Condition": self.condition} if self.condition else {})


class NoRow(LookupError):
    """A resource type that `actions.json` does not know."""


def statements(graph: Graph, region: str) -> tuple[Statement, ...]:
    """Return what making, changing and deleting all of a plan takes. Raises NoRow."""
    return tuple(filter(None, _statements(tuple(_needs(graph, region)), region)))


def of_commands(names: Collection[str], fleet: Fleet) -> tuple[Statement, ...]:
    """Return what commands other than `pulumi up` ask of AWS."""
    secret = fleet.github.secret_source
    places = {"region": fleet.region, **({"secret": secret} if secret.startswith("arn:") else {})}
    needs = [
        (row, tuple(arn.format(**places) for arn in row.arns))
        for row in table.of_commands()
        if row.type in names and ("secret" in places or "{secret}" not in row.arns)
    ]
    return tuple(filter(None, _statements(needs, fleet.region)))


def _statements(needs: Sequence[tuple[Row, tuple[str, ...]]], region: str) -> Iterator[Statement | None]:
    anywhere = {action for row, _ in needs for action in row.anywhere}
    narrow = {action for row, _ in needs for action in row.actions} - anywhere
    arns = {arn for _, row_arns in needs for arn in row_arns}
    services = {service for row, _ in needs for service in row.service_roles}
    regional = sorted(action for action in anywhere if service_of(action) not in _GLOBAL)
    yield Statement(tuple(regional), ("*",), {"StringEquals": {"aws:RequestedRegion": region}}) if regional else None
    for service in sorted(set(map(service_of, narrow))):
        named = tuple(sorted(arn for arn in arns if arn.split(":")[2] == service))
        yield Statement(tuple(sorted(action for action in narrow if service_of(action) == service)), named)
    everywhere = sorted(action for action in anywhere if service_of(action) in _GLOBAL)
    yield Statement(tuple(everywhere), ("*",)) if everywhere else None
    condition = {"StringEquals": {"iam:AWSServiceName": sorted(services)}}
    yield Statement(("iam:CreateServiceLinkedRole",), (_SERVICE_ROLES,), condition) if services else None


def policies(parts: Iterable[Statement]) -> tuple[dict[str, Any], ...]:
    """Return the statements as policy documents, as many as AWS's limit on their size takes."""
    packed: list[list[Statement]] = [[]]
    for part in parts:
        for piece in _pieces(part):
            if size(_policy([*packed[-1], piece])) > LARGEST:
                packed.append([])
            packed[-1].append(piece)
    return tuple(_policy(pieces) for pieces in packed if pieces)


def size(policy: Mapping[str, Any]) -> int:
    """Return the characters that count against AWS's limit."""
    return len(json.dumps(policy, separators=(",", ":")))


def _policy(parts: Iterable[Statement]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [part.document() for part in parts]}


def _pieces(part: Statement) -> Iterator[Statement]:
    """Yield the statement, in halves where it alone is too large for a policy."""
    if size(_policy([part])) <= LARGEST or max(len(part.actions), len(part.resources)) == 1:
        yield part
    elif len(part.resources) > 1:
        half = len(part.resources) // 2
        yield from _pieces(replace(part, resources=part.resources[:half]))
        yield from _pieces(replace(part, resources=part.resources[half:]))
    else:
        half = len(part.actions) // 2
        yield from _pieces(replace(part, actions=part.actions[:half]))
        yield from _pieces(replace(part, actions=part.actions[half:]))


def _needs(graph: Graph, region: str) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """Yield the row of each resource and look-up in AWS, with the ARNs that it stands for."""
    for resource in graph.resources.values():
        if resource.type.startswith("aws:") and resource.custom:
            row = _row(resource.type)
            names = _names(resource, graph) if row.arns else {}
            yield row, tuple(arn.format(region=region, **names) for arn in row.arns)
    for token, arguments in graph.lookups:
        if token.startswith("aws:"):
            row = _row(token)
            yield row, tuple(arn.format(region=region, **arguments) for arn in row.arns)


def _row(type_: str) -> Row:
    try:
        return table.rows()[type_]
    except KeyError:
        raise NoRow(f"{table.FILE.name} has no row of {type_}") from None


def _names(resource: Resource, graph: Graph) -> dict[str, str]:
    name = _name(resource, graph)
    cluster = str(resource.inputs.get("clusterName") or name)
    return {"name": name, "cluster": cluster, "host": urlsplit(str(resource.inputs.get("url", ""))).netloc}


def _name(resource: Resource, graph: Graph) -> str:
    """Return the physical name; where Pulumi makes it up, its beginning and a wildcard."""
    if "name" not in resource.inputs:
        return f"{resource.name}-*"
    for urn in resource.property_dependencies.get("name", ()):
        if "name" not in graph.resources[urn].inputs:
            return f"*/{graph.resources[urn].name}-*"  # made of a name that Pulumi makes up
    return str(resource.inputs["name"])


def service_of(action: str) -> str:
    """Return the service of an action: `ec2` of `ec2:CreateVpc`."""
    return action.partition(":")[0]
