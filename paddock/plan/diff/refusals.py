"""Changes that Pulumi or AWS will refuse, and those that AWS may, with what to write or to run before.

AWS's limits are in `refusals.json`, each with its source: `refused` is certain, `note` depends on what a plan does not
know.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from paddock.plan.diff.fields import clean
from paddock.plan.diff.impact import Draft
from paddock.plan.diff.model import Change
from paddock.plan.document.model import Resource
from paddock.plan.engine.resource_types import ACCESS_ENTRY, LAUNCH_TEMPLATE, SUBNET

Resources = Mapping[str, Resource]

USER_DATA = 16 * 1024
"""Bytes of user data that EC2 takes, before they are encoded."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The two plans by URN, what becomes of each resource, and what they say of the cluster."""

    before: Resources
    after: Resources
    drafts: Mapping[str, Draft]
    region: str
    kubernetes: str
    """Minor of the control plane afterwards."""
    day: str
    """On which the later plan was made, as YYYY-MM-DD; empty where it does not say."""

    def created(self, urn: str) -> bool:
        """Return whether a resource of the later plan is made while the earlier one's are still there."""
        replaced = urn in self.drafts and self.drafts[urn].effect == "replace"
        return urn not in self.before or (replaced and not self.after[urn].delete_before_replace)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of AWS that a change meets: its key in `refusals.json`, and what its text names."""

    key: str
    facts: Mapping[str, Any]


@cache
def data() -> dict[str, Any]:
    """Return the limits of AWS. `rows`: by key, with kind, text and source; `unique`: by type, the field."""
    document: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return document


def said(limits: Sequence[Limit], kind: str) -> Iterator[str]:
    """Yield the limits of a kind, `refused` or `note`, as sentences."""
    for limit in limits:
        row = data()["rows"][limit.key]
        if row["kind"] == kind:
            text = row["text"].format(**{name: clean(str(value)) for name, value in limit.facts.items()})
            yield f"{text} ({row['source']}; read {data()['as_of']})"


def protected(changes: Sequence[Change]) -> Iterator[str]:
    """Yield what Pulumi refuses to delete."""
    for change in changes:
        if change.protected and change.action in ("remove", "replace"):
            action = "removed" if change.action == "remove" else "replaced"
            yield (
                f"{change.type.rpartition(':')[2]} {change.name} is protected and would be {action}: Pulumi refuses, "
                f"and what it holds would be lost; docs/protected.md says how to remove it"
            )


def moved(region: str, plans: Compared) -> Iterator[Limit]:
    """Yield the limit of a stack that was in another region: what else differs follows from it."""
    if region and plans.region and region != plans.region:
        yield Limit("stack.region", {"old": region, "new": plans.region})


def limits(plans: Compared) -> Iterator[Limit]:
    """Yield the limits that do not belong to EKS alone."""
    yield from _identities(plans)
    yield from _user_data(plans)
    yield from _overlaps(plans)
    if going := [clean(plans.before[urn].name) for urn in plans.before if _goes(plans, urn)]:
        yield Limit("subnet.held", {"subnets": ", ".join(sorted(going)), "region": plans.region})


def moves(plans: Compared, urn: str) -> bool:
    """Return whether a subnet ends up in another VPC."""
    if urn not in plans.after or plans.after[urn].type != SUBNET:
        return False
    vpcs = plans.after[urn].property_dependencies.get("vpcId", ())
    return any(vpc not in plans.drafts or plans.drafts[vpc].effect == "replace" for vpc in vpcs)


def _goes(plans: Compared, urn: str) -> bool:
    if plans.before[urn].type != SUBNET or moves(plans, urn):
        return False
    return urn not in plans.after or plans.drafts[urn].effect == "replace"


def _identities(plans: Compared) -> Iterator[Limit]:
    """Yield what is made under a name of which AWS takes one, before what has it is deleted."""
    unique: Mapping[str, str] = data()["unique"]
    gone = {
        (resource.type, value): resource.name
        for urn, resource in plans.before.items()
        if urn not in plans.after and isinstance(value := resource.inputs.get(unique.get(resource.type, "")), str)
    }
    for urn, resource in plans.after.items():
        field = unique.get(resource.type, "")
        value = resource.inputs.get(field)
        # A computed name is a stand-in, and the same one in both plans.
        if urn in plans.before or not isinstance(value, str) or field in resource.property_dependencies:
            continue
        other = gone.get((resource.type, value))
        # Under its old name a resource has moved to another component, which an alias says.
        if other and other != resource.name:
            facts = {"type": resource.type.rpartition(":")[2], "name": resource.name, "other": other}
            yield Limit("identity", {**facts, "field": field, "value": value})


def _user_data(plans: Compared) -> Iterator[Limit]:
    for urn, resource in plans.after.items():
        if resource.type != LAUNCH_TEMPLATE or (urn in plans.before and plans.drafts[urn].effect == "none"):
            continue
        try:
            size = len(base64.b64decode(str(resource.inputs.get("userData", "")), validate=True))
        except binascii.Error:
            continue
        if size > USER_DATA:
            yield Limit("template.user-data", {"template": resource.name, "size": size})


def _overlaps(plans: Compared) -> Iterator[Limit]:
    """Subnets that are created where another one is until the end: Pulumi deletes last."""
    standing = {urn: range_ for urn, resource in plans.before.items() if (range_ := _range(resource))}
    listed = ", ".join(f"{plans.before[urn].name} {range_}" for urn, range_ in standing.items())
    for urn, resource in plans.after.items():
        new_range = _range(resource)
        if new_range is None or not plans.created(urn) or moves(plans, urn):
            continue
        for other, taken in standing.items():
            if new_range.overlaps(taken):
                facts = {"subnet": resource.name, "range": new_range, "other": plans.before[other].name}
                yield Limit("subnet.overlap", {**facts, "taken": taken, "listed": listed})
                return


def _range(resource: Resource) -> IPv4Network | None:
    if resource.type != SUBNET:
        return None
    try:
        return IPv4Network(str(resource.inputs.get("cidrBlock")))
    except ValueError:
        return None


def new_access(plans: Compared) -> list[str]:
    """Return the names of access entries that only the later plan has."""
    urns = (urn for urn in plans.after if urn not in plans.before)
    return sorted(plans.after[urn].name for urn in urns if plans.after[urn].type == ACCESS_ENTRY)
