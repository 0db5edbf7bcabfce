"""Changes that Pulumi or AWS will refuse, with what to write in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any

from paddock.plan.diff.changes import Draft
from paddock.plan.diff.fields import clean
from paddock.plan.diff.model import Change
from paddock.plan.document.model import Resource
from paddock.plan.engine.resource_types import CLUSTER, SUBNET

Resources = Mapping[str, Resource]


def refusals(changes: list[Change], before: Resources, after: Resources, drafts: Mapping[str, Draft]) -> Iterator[str]:
    """Return what would stop `pulumi up`."""
    yield from _protected(changes)
    for urn, draft in drafts.items():
        if after[urn].type == CLUSTER and draft.effect != "replace":
            yield from _cluster(before[urn], after[urn], before, after, drafts)
    yield from _overlaps(before, after, drafts)


def _protected(changes: list[Change]) -> Iterator[str]:
    for change in changes:
        if change.protected and change.action in ("remove", "replace"):
            action = "removed" if change.action == "remove" else "replaced"
            yield (
                f"{change.type.rpartition(':')[2]} {change.name} is protected and would be {action}: Pulumi refuses, "
                f"and what it holds would be lost; docs/protected.md says how it may go"
            )


def _cluster(
    old: Resource, new: Resource, before: Resources, after: Resources, drafts: Mapping[str, Draft]
) -> Iterator[str]:
    name, subnets = clean(new.name), new.property_dependencies.get("vpcConfig", ())
    if any(_moves(after, drafts, subnet) for subnet in subnets):
        yield (
            f"EKS cannot move cluster {name} into another VPC, and its network is replaced: "
            f"the update fails. Leave the network as it is, or build a new stack beside this one and move the "
            f"runners"
        )
    else:
        yield from _zones(name, _zones_of(old, before), _zones_of(new, after))
    was, becomes = (_version(resource.inputs.get("version")) for resource in (old, new))
    if was and becomes and not was <= becomes <= (was[0], was[1] + 1):
        step = "go back to an older version" if becomes < was else "skip a Kubernetes minor version"
        yield f"EKS cannot {step}: {was[0]}.{was[1]} to {becomes[0]}.{becomes[1]}"


def _zones(name: str, old: set[str], new: set[str]) -> Iterator[str]:
    """Return refusals of other zones for a control plane.

    "All subnets that you add must be in the same set of AZs as originally provided when you created the cluster", and
    each of these zones keeps one (EKS user guide, VPC and subnet requirements; aws/containers-roadmap issue 2258).
    """
    if not old or not new:
        return
    if added := sorted(new - old):
        yield (
            f"EKS keeps cluster {name} in the zones it was created in, and {', '.join(added)} would be new to it: the "
            f"update fails. Write cluster.zones: [{', '.join(sorted(old))}], and nodes alone go there"
        )
    if removed := sorted(old - new):
        yield (
            f"EKS keeps cluster {name} in the zones it was created in, and {', '.join(removed)} would go: the update "
            f"fails. Leave them in network.zones and cluster.zones, and list the others in pools.<name>.zones"
        )


def _zones_of(cluster: Resource, resources: Resources) -> set[str]:
    """Return the zones of a cluster's subnets; nothing where the stack did not make them."""
    subnets = [resources.get(urn) for urn in cluster.property_dependencies.get("vpcConfig", ())]
    zones = [subnet.inputs.get("availabilityZone") for subnet in subnets if subnet and subnet.type == SUBNET]
    return {clean(zone) for zone in zones if isinstance(zone, str)}


def _overlaps(before: Resources, after: Resources, drafts: Mapping[str, Draft]) -> Iterator[str]:
    """Subnets that are created where another one is until the end: Pulumi deletes last, and EC2 allows no overlap."""
    standing = {urn: range_ for urn, resource in before.items() if (range_ := _range(resource))}
    for urn, resource in after.items():
        created = urn not in before or drafts[urn].effect == "replace"
        new_range = _range(resource)
        if new_range is None or not created or _moves(after, drafts, urn):
            continue
        for other, taken in standing.items():
            if new_range.overlaps(taken):
                yield (
                    f"Subnet {clean(resource.name)} would get {new_range} while {clean(before[other].name)} still has "
                    f"{taken}: EC2 refuses subnets that overlap. Write the ranges of today into network.privateSubnets "
                    f"and publicSubnets, and free ones for zones that are new: {_listed(standing, before)}"
                )
                return


def _listed(standing: Mapping[str, IPv4Network], before: Resources) -> str:
    return ", ".join(f"{clean(before[urn].name)} {range_}" for urn, range_ in standing.items())


def _range(resource: Resource) -> IPv4Network | None:
    if resource.type != SUBNET:
        return None
    try:
        return IPv4Network(str(resource.inputs.get("cidrBlock")))
    except ValueError:
        return None


def _moves(after: Resources, drafts: Mapping[str, Draft], urn: str) -> bool:
    """Return whether a subnet ends up in another VPC."""
    if urn not in after or after[urn].type != SUBNET:
        return False
    vpcs = after[urn].property_dependencies.get("vpcId", ())
    return any(vpc not in drafts or drafts[vpc].effect == "replace" for vpc in vpcs)


def _version(value: Any) -> tuple[int, int] | None:
    parts = value.split(".") if isinstance(value, str) else []
    if len(parts) < 2 or not all(part.isascii() and part.isdecimal() and len(part) < 5 for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])
