"""Limits of EKS that changed clusters, node groups and add-ons meet, or may meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paddock import catalog
from paddock.plan.diff import replacement
from paddock.plan.diff.fields import clean
from paddock.plan.diff.impact import Draft
from paddock.plan.diff.refusals import Compared, Limit, moves, new_access
from paddock.plan.document.model import Resource
from paddock.plan.engine.resource_types import ACCESS_ENTRY, ADDON, CLUSTER, NODE_GROUP, SUBNET

_MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")
_DESIRED = "scalingConfig.desiredSize"


def limits(plans: Compared) -> Iterator[Limit]:
    """Yield every limit of EKS that the changes meet, or may meet."""
    for urn, draft in plans.drafts.items():
        old, new = plans.before[urn], plans.after[urn]
        if new.type == CLUSTER:
            yield from _cluster(plans, draft, old, new)
        elif new.type == NODE_GROUP and draft.effect not in ("none", "replace"):
            yield from _node_group(plans, draft, old, new)
        elif new.type == ADDON:
            yield from _addon(plans, old, new)
    yield from _made(plans)
    gone = (plans.before[urn] for urn in plans.before if urn not in plans.after)
    deployers = [entry for entry in gone if entry.type == ACCESS_ENTRY and "principalArn" in entry.ignore_changes]
    if deployers and (names := new_access(plans)):
        eks = deployers[0].inputs.get("clusterName")
        yield Limit("access.deployer", {"names": ", ".join(names), "region": plans.region, "eks": eks})


def _cluster(plans: Compared, draft: Draft, old: Resource, new: Resource) -> Iterator[Limit]:
    facts = {"cluster": new.name, "eks": new.inputs.get("name"), "region": plans.region}
    if draft.effect == "replace":
        forced = {".".join(f.keys) for f in draft.fields if replacement.effect(CLUSTER, f.keys) == "replace"}
        yield Limit("cluster.replaced", {**facts, "fields": ", ".join(sorted(forced or draft.roots))})
        return
    if any(moves(plans, subnet) for subnet in new.property_dependencies.get("vpcConfig", ())):
        yield Limit("cluster.vpc", facts)
    else:
        yield from _zones(facts, _zones_of(old, plans.before), _zones_of(new, plans.after))
    vpc = _part(new, "vpcConfig")
    if vpc.get("endpointPublicAccess") is False and vpc.get("endpointPrivateAccess") is False:
        yield Limit("cluster.endpoint", facts)
    was, becomes = (_part(resource, "accessConfig").get("authenticationMode") for resource in (old, new))
    if was in _MODES and becomes in _MODES and _MODES.index(becomes) - _MODES.index(was) not in (0, 1):
        yield Limit("cluster.authentication", {**facts, "old": was, "new": becomes})
    yield from _support(plans, old, new)
    yield from _version_of(plans, facts, old, new)


def _zones(facts: Mapping[str, Any], old: set[str], new: set[str]) -> Iterator[Limit]:
    if not old or not new:
        return
    if added := sorted(new - old):
        yield Limit("cluster.zone-added", {**facts, "zones": ", ".join(added), "kept": ", ".join(sorted(old))})
    if removed := sorted(old - new):
        yield Limit("cluster.zone-removed", {**facts, "zones": ", ".join(removed)})


def _zones_of(cluster: Resource, resources: Mapping[str, Resource]) -> set[str]:
    """Return the zones of a cluster's subnets; nothing where the stack did not make them."""
    subnets = [resources.get(urn) for urn in cluster.property_dependencies.get("vpcConfig", ())]
    zones = [subnet.inputs.get("availabilityZone") for subnet in subnets if subnet and subnet.type == SUBNET]
    return {clean(zone) for zone in zones if isinstance(zone, str)}


def _support(plans: Compared, old: Resource, new: Resource) -> Iterator[Limit]:
    was, becomes = (_part(resource, "upgradePolicy").get("supportType") for resource in (old, new))
    row = catalog.eks_versions().get(str(new.inputs.get("version")))
    ended = row is not None and row.end_of_standard_support.isoformat() <= plans.day
    if (was, becomes) == ("EXTENDED", "STANDARD") and row and ended:
        yield Limit("cluster.support", {"version": row.version, "end": row.end_of_standard_support})


def _version_of(plans: Compared, facts: Mapping[str, Any], old: Resource, new: Resource) -> Iterator[Limit]:
    was, becomes = (_minor(resource.inputs.get("version")) for resource in (old, new))
    if not was or not becomes or was == becomes:
        return
    facts = {**facts, "old": _text(was), "new": _text(becomes)}
    if becomes == (was[0], was[1] - 1):
        command = f"aws eks update-nodegroup-version {_group(plans, new.inputs.get('name'))}"
        yield Limit("cluster.back", {**facts, "command": f"{command} --kubernetes-version {_text(becomes)}"})
    elif becomes < was:
        yield Limit("cluster.back-far", facts)
    elif becomes > (was[0], was[1] + 1):
        yield Limit("cluster.skip", {**facts, "next": _text((was[0], was[1] + 1))})
    groups = [group for group in plans.before.values() if group.type == NODE_GROUP]
    behind = sorted(group.name for group in groups if (_minor(group.inputs.get("version")) or was) < was)
    if becomes > was and behind:
        yield Limit("cluster.nodes-behind", {**facts, "groups": ", ".join(behind)})


def _node_group(plans: Compared, draft: Draft, old: Resource, new: Resource) -> Iterator[Limit]:
    sizes = (_part(resource, "scalingConfig").get(size) for resource in (old, new) for size in ("minSize", "maxSize"))
    known = [size for size in sizes if isinstance(size, int)]
    if _DESIRED in new.ignore_changes and len(known) == 4:
        least, most, minimum, maximum = known
        named = f"{new.name}-XXXXXXX"  # as Pulumi names it
        command = f"aws eks update-nodegroup-config {_group(plans, new.inputs.get('clusterName'), named)}"
        facts = {"group": new.name, "before": least, "minimum": minimum, "maximum": maximum, "command": command}
        if minimum > least:
            yield Limit("node-group.minimum", facts)
        elif maximum < least:
            yield Limit("node-group.below-minimum", facts)
        elif maximum < most:
            yield Limit("node-group.maximum", facts)
    was, becomes, cluster = _minor(old.inputs.get("version")), _minor(new.inputs.get("version")), plans.kubernetes
    if was and becomes and becomes < was:
        yield Limit("node-group.back", {"group": new.name, "old": _text(was), "new": _text(becomes)})
    if becomes and becomes == was and becomes < (_minor(cluster) or becomes) and "launchTemplate" in draft.roots:
        yield Limit("node-group.moves-up", {"group": new.name, "version": _text(becomes), "cluster": cluster})


def _made(plans: Compared) -> Iterator[Limit]:
    """Node groups that are made, of another minor than the control plane's."""
    for urn, group in plans.after.items():
        version = _minor(group.inputs.get("version")) if group.type == NODE_GROUP and plans.created(urn) else None
        if version and version != _minor(plans.kubernetes):
            made = "new" if urn not in plans.before else "replaced"
            facts = {"group": group.name, "made": made, "version": _text(version), "cluster": plans.kubernetes}
            yield Limit("node-group.older", facts)


def _addon(plans: Compared, old: Resource, new: Resource) -> Iterator[Limit]:
    was, becomes = (_minor(str(resource.inputs.get("addonVersion", "")).lstrip("v")) for resource in (old, new))
    if new.inputs.get("addonName") != "vpc-cni" or not was or not becomes or abs(becomes[1] - was[1]) < 2:
        return
    step = 1 if becomes > was else -1
    steps = ", ".join(_text((was[0], minor)) for minor in range(was[1] + step, becomes[1], step))
    versions = {"old": old.inputs["addonVersion"], "new": new.inputs["addonVersion"], "steps": steps}
    yield Limit("addon.vpc-cni", {**versions, "eks": new.inputs.get("clusterName"), "region": plans.region})


def _group(plans: Compared, cluster: Any, group: str = "NAME") -> str:
    """Return the flags that name a node group."""
    return f"--region {plans.region} --cluster-name {cluster} --nodegroup-name {group}"


def _part(resource: Resource, key: str) -> Mapping[str, Any]:
    part = resource.inputs.get(key)
    return part if isinstance(part, Mapping) else {}


def _minor(value: Any) -> tuple[int, int] | None:
    parts = value.split(".") if isinstance(value, str) else []
    if len(parts) < 2 or not all(part.isascii() and part.isdecimal() and len(part) < 5 for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


def _text(minor: tuple[int, int]) -> str:
    return f"{minor[0]}.{minor[1]}"
