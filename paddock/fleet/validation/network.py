"""Checks of the region and the network: zones, subnets, and addresses for all nodes and pods."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from paddock import catalog
from paddock.catalog.limits import limit
from paddock.fleet.errors import Key, Problem, did_you_mean
from paddock.fleet.model.cluster import KubeconfigCluster, NewCluster
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.network import PRIVATE_RANGES, ExistingNetwork, NewNetwork
from paddock.fleet.sizing.addresses import addresses, addresses_needed


def problems(fleet: Fleet) -> Iterator[Problem]:
    yield from _region(fleet)
    yield from _zones_of_adopted_subnets(fleet)
    yield from _subnets_and_zones(fleet)
    yield from _addresses(fleet)
    yield from _egress(fleet)


_OTHER_PARTITIONS = ("cn-", "us-gov-")
"""Beginnings of the names of their regions: AWS China and AWS GovCloud."""


def other_partition(region: str) -> Problem | None:
    """Return the problem of a region outside AWS's commercial partition, None inside it."""
    if not region.startswith(_OTHER_PARTITIONS):
        return None
    return Problem(
        ("region",),
        f"{region} is not supported yet: ARNs and prices here are those of AWS's commercial partition",
        "a region of the commercial partition, such as us-west-2",
        "choose a region outside China and GovCloud",
    )


def _region(fleet: Fleet) -> Iterator[Problem]:
    """Yield problems of a region that nothing is known of, or that lacks the zones counted on."""
    if problem := other_partition(fleet.region):
        yield problem
        return
    regions = catalog.regions()
    if fleet.region not in regions:
        expected = "a region of AWS, such as us-west-2"
        yield Problem(
            ("region",),
            f"the catalogue has no AWS region {fleet.region}",
            expected,
            did_you_mean(fleet.region, regions)
            or "one that AWS added since goes into paddock/catalog/data/regions.json",
        )
        return
    zones, letters = getattr(fleet.network, "zones", None), regions[fleet.region]
    if not isinstance(fleet.network, NewNetwork) or isinstance(fleet.cluster, KubeconfigCluster):
        return
    command = f"aws ec2 describe-availability-zones --region {fleet.region}"
    if isinstance(zones, int) and letters is None:
        message = f"accounts have different zones in {fleet.region}, so they cannot be counted"
        expected = f"their names: [{fleet.region}a, {fleet.region}c]"
        yield Problem(("network", "zones"), message, expected, f"{command} lists those of your account")
    elif isinstance(zones, int) and letters is not None and zones > len(letters):
        message = f"{fleet.region} has {len(letters)} zones, not {zones}"
        yield Problem(("network", "zones"), message, f"{len(letters)} or fewer", f"write zones: {len(letters)}")


def _subnets_and_zones(fleet: Fleet) -> Iterator[Problem]:
    network = fleet.network
    if not isinstance(network, NewNetwork) or isinstance(fleet.cluster, KubeconfigCluster):
        return
    vpc, zones = IPv4Network(network.cidr), network.zone_count
    if not (largest := limit("vpc.largest")) <= vpc.prefixlen <= 22:
        size = "too small for nodes and pods" if vpc.prefixlen > 22 else "larger than AWS allows"
        yield Problem(
            ("network", "cidr"),
            f"{network.cidr} is {size}",
            f"a range from /{largest} to /22",
            "write cidr: 10.0.0.0/16",
        )
        return
    for field, ranges in (("privateSubnets", network.private_subnets), ("publicSubnets", network.public_subnets)):
        if ranges and len(ranges) != zones:
            yield Problem(("network", field), f"{len(ranges)} ranges for {zones} zones", f"{zones} ranges, one a zone")
            return
    names = network.zone_names(fleet.region)
    # A count beyond the zones of the region is reported above.
    beyond = [name for name, slot in zip(names, network.slots, strict=False) if slot >= network.room]
    if beyond and not (network.private_subnets and network.public_subnets):
        yield Problem(
            ("network", "cidr"),
            f"{network.cidr} has no part for zone {beyond[0]}: it is laid out for {network.room} zones",
            "a larger range" if vpc.prefixlen > 21 else "zones of the region's first letters",
            ("write cidr: 10.0.0.0/16, or" if vpc.prefixlen > 21 else "write")
            + " privateSubnets and publicSubnets, one range a zone",
        )
        return
    private, public = network.subnets()
    named = [("privateSubnets", i, IPv4Network(c)) for i, c in enumerate(private)]
    named += [("publicSubnets", i, IPv4Network(c)) for i, c in enumerate(public)]
    for position, (field, index, subnet) in enumerate(named):
        key = ("network", field, index)
        if not subnet.subnet_of(vpc):
            yield Problem(key, f"{subnet} is outside the VPC's {vpc}", f"a part of {vpc}")
        elif subnet.prefixlen > (smallest := 26 if field == "privateSubnets" else limit("vpc.smallest-subnet")):
            yield Problem(key, f"{subnet} is too small for {field}", f"/{smallest} or larger")
        for other_field, other_index, other in named[:position]:
            if subnet.overlaps(other):
                yield Problem(
                    key, f"{subnet} overlaps {other} of {other_field}[{other_index}]", "ranges that do not overlap"
                )
    if isinstance(fleet.cluster, NewCluster) and IPv4Network(fleet.cluster.service_cidr).overlaps(vpc):
        yield Problem(
            ("cluster", "serviceCidr"),
            f"the services' {fleet.cluster.service_cidr} overlaps the VPC's {vpc}",
            "a range outside the VPC, such as 172.20.0.0/16",
        )
    for index, zone in enumerate(network.zones if isinstance(network.zones, tuple) else ()):
        if not zone.startswith(fleet.region):
            yield Problem(
                ("network", "zones", index), f"{zone} is not in {fleet.region}", f"zones such as {fleet.region}a"
            )
    if isinstance(fleet.cluster, NewCluster):
        yield from _control_plane_zones(fleet.cluster.zones, names)
    for name, pool in fleet.pools.items():
        for index, zone in enumerate(pool.zones):
            if zone not in names:
                yield Problem(
                    ("pools", name, "zones", index),
                    f"the network has no subnet in {zone}",
                    f"one of {', '.join(names)}",
                    f"add {zone} to network.zones, or leave the pool's zones out to buy in all",
                )


def _control_plane_zones(zones: tuple[str, ...], names: tuple[str, ...]) -> Iterator[Problem]:
    key = ("cluster", "zones")
    for index, zone in enumerate(zones):
        if zone not in names:
            yield Problem(
                (*key, index),
                f"the network has no subnet in {zone}",
                f"some of {', '.join(names)}",
                f"add {zone} to network.zones, or take it out of cluster.zones",
            )
    if 0 < len(zones) < limit("eks.control-plane-zones"):
        yield Problem(key, "EKS wants two zones for a control plane", f"two or more of {', '.join(names)}")


def _zones_of_adopted_subnets(fleet: Fleet) -> Iterator[Problem]:
    if isinstance(fleet.network, NewNetwork) or not fleet.owns_nodes:
        return
    zones: dict[Key, tuple[str, ...]] = {("pools", name, "zones"): pool.zones for name, pool in fleet.pools.items()}
    zones["cluster", "zones"] = fleet.cluster.zones if isinstance(fleet.cluster, NewCluster) else ()
    for key, named in zones.items():
        if named:
            yield Problem(
                key,
                "the network is adopted by its subnets, and their zones are not in the stack",
                "no zones",
                "list the subnets of the zones you mean in network.existing.subnets",
            )


def _addresses(fleet: Fleet) -> Iterator[Problem]:
    network = fleet.network
    if not isinstance(network, NewNetwork) or not fleet.owns_nodes or any(_subnets_and_zones(fleet)):
        return
    has, needed = addresses(network), addresses_needed(fleet)
    total = sum(needed.values())
    if total > has:
        parts = ", ".join(f"{name} {count}" for name, count in needed.items())
        vpc = IPv4Network(network.cidr)
        larger = next((p for p in range(vpc.prefixlen, 15, -1) if has * 2 ** (vpc.prefixlen - p) >= total), None)
        expected = f"{total} addresses or more" + (
            f", such as {vpc.supernet(new_prefix=larger)} gives" if larger else ""
        )
        yield Problem(
            ("network", "privateSubnets" if network.private_subnets else "cidr"),
            f"the private subnets have {has} addresses, and all nodes with all their pods need {total} ({parts})",
            expected,
            "write a larger range, or lower nodes.max or maxPods of the pools",
        )


def _egress(fleet: Fleet) -> Iterator[Problem]:
    network = fleet.network
    vpc = [network.cidr] if isinstance(network, NewNetwork) else []
    inside = [IPv4Network(cidr) for cidr in (*PRIVATE_RANGES, *vpc)]
    for index, cidr in enumerate(network.egress.allow):
        key, allowed = ("network", "egress", "allow", index), IPv4Network(cidr)
        if allowed.overlaps(IPv4Network("169.254.0.0/16")):
            message = f"{cidr} holds 169.254.169.254, where a job would take the node's credentials"
            yield Problem(key, message, "a private network, such as 10.20.0.0/16")
        # The ranges of an adopted VPC are not in the file, and need not be private ones.
        elif not isinstance(network, ExistingNetwork) and not any(allowed.subnet_of(part) for part in inside):
            message = f"{cidr} is not a private network: jobs reach public addresses without it"
            expected = f"a part of {', '.join(map(str, inside[: len(PRIVATE_RANGES)]))}"
            yield Problem(key, message, expected, "take it out")
