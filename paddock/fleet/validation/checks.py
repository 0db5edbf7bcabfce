"""Checks between the parts of a fleet. Each yields its problems; none stops at the first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from ipaddress import IPv4Network, collapse_addresses
from typing import TYPE_CHECKING, Literal

from paddock import catalog
from paddock.fleet.errors import Problem, did_you_mean
from paddock.fleet.model.cluster import ExistingCluster, KubeconfigCluster, NewCluster
from paddock.fleet.model.network import ExistingNetwork, NewNetwork
from paddock.fleet.model.pool import Bottlerocket, CapacityBlock, Custom, EksManaged
from paddock.fleet.sizing import capacity
from paddock.fleet.validation import images as ami_build
from paddock.fleet.validation import runners

if TYPE_CHECKING:
    from paddock.fleet.model.fleet import Fleet


def problems(fleet: Fleet) -> Iterator[Problem]:
    """Yield every problem of the fleet that does not depend on the day."""
    yield from _cluster(fleet)
    yield from _network(fleet)
    yield from _addresses(fleet)
    yield from _pools(fleet)
    yield from runners.problems(fleet)
    yield from _images(fleet)


def support(version: str, level: Literal["standard", "extended"], today: date) -> Iterator[Problem]:
    """The Kubernetes minor must be known, and supported on `today`."""
    key, minors = ("cluster", "version"), catalog.eks_versions()
    usable = [
        name for name, minor in minors.items() if minor.support_on(today) in {"standard", level}
    ]  # fmt: skip
    expected = f"one of {', '.join(usable)}"
    if version not in minors:
        yield Problem(key, f"EKS has no Kubernetes {version} that the catalogue knows", expected, "inv catalog.refresh")
        return
    minor = minors[version]
    state = minor.support_on(today)
    if state == "ended" or (state == "extended" and level == "standard"):
        end = minor.end_of_standard_support if state == "extended" else minor.end_of_extended_support
        kind = "standard" if state == "extended" else "extended"
        fix = f'write version: "{usable[-1]}"' if usable else ""
        if state == "extended":
            fix += ", or cluster.support: extended at six times the control plane's price"
        yield Problem(key, f"{kind} support of Kubernetes {version} on EKS ended on {end}", expected, fix)


def _cluster(fleet: Fleet) -> Iterator[Problem]:
    cluster, network = fleet.cluster, fleet.network
    if isinstance(cluster, ExistingCluster) and not isinstance(network, ExistingNetwork):
        yield Problem(
            ("network",),
            f"the cluster {cluster.existing} exists already, so its network does too",
            "network: {existing: {vpc: vpc-..., subnets: [subnet-..., subnet-...]}}",
            "name the cluster's VPC and the private subnets for GPU nodes",
        )
    if not isinstance(cluster, NewCluster):
        return
    allow = cluster.endpoint.allow
    if allow != "any" and any(net.prefixlen == 0 for net in collapse_addresses(IPv4Network(cidr) for cidr in allow)):
        yield Problem(
            ("cluster", "endpoint", "allow"),
            "the Kubernetes API would be open to the whole internet",
            "the networks your people and CI come from, such as [203.0.113.0/24]",
            "list them, or write allow: any if the whole internet is meant",
        )
    if cluster.system.nodes.max < cluster.system.nodes.min:
        yield Problem(
            ("cluster", "system", "nodes", "max"),
            f"nodes.max ({cluster.system.nodes.max}) is below nodes.min ({cluster.system.nodes.min})",
            f"{cluster.system.nodes.min} or more",
            "raise max, or lower min",
        )
    for index, name in enumerate(cluster.system.instances):
        types = catalog.instances()
        plain = [n for n, t in types.items() if t.gpu is None]
        if name not in types or types[name].gpu:
            yield Problem(
                ("cluster", "system", "instances", index),
                f"{name} has a GPU: system nodes would pay for it"
                if name in types
                else f'unknown instance type "{name}"',
                f"one of {', '.join(plain)}",
                "" if name in types else did_you_mean(name, plain),
            )


def _network(fleet: Fleet) -> Iterator[Problem]:
    network = fleet.network
    if not isinstance(network, NewNetwork) or isinstance(fleet.cluster, KubeconfigCluster):
        return
    vpc, zones = IPv4Network(network.cidr), network.zone_count
    if not 16 <= vpc.prefixlen <= 22:
        size = "too small for nodes and pods" if vpc.prefixlen > 22 else "larger than AWS allows"
        yield Problem(
            ("network", "cidr"), f"{network.cidr} is {size}", "a range from /16 to /22", "write cidr: 10.0.0.0/16"
        )
        return
    for field, ranges in (("privateSubnets", network.private_subnets), ("publicSubnets", network.public_subnets)):
        if ranges and len(ranges) != zones:
            yield Problem(("network", field), f"{len(ranges)} ranges for {zones} zones", f"{zones} ranges, one a zone")
            return
    private, public = network.subnets()
    named = [("privateSubnets", i, IPv4Network(c)) for i, c in enumerate(private)]
    named += [("publicSubnets", i, IPv4Network(c)) for i, c in enumerate(public)]
    for position, (field, index, subnet) in enumerate(named):
        key = ("network", field, index)
        if not subnet.subnet_of(vpc):
            yield Problem(key, f"{subnet} is outside the VPC's {vpc}", f"a part of {vpc}")
        elif subnet.prefixlen > (26 if field == "privateSubnets" else 28):
            smallest = "/26" if field == "privateSubnets" else "/28"
            yield Problem(key, f"{subnet} is too small for {field}", f"{smallest} or larger")
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
    zone_names = network.zone_names(fleet.region)
    for index, zone in enumerate(network.zones if isinstance(network.zones, tuple) else ()):
        if not zone.startswith(fleet.region):
            yield Problem(
                ("network", "zones", index), f"{zone} is not in {fleet.region}", f"zones such as {fleet.region}a"
            )
    for name, pool in fleet.pools.items():
        for index, zone in enumerate(pool.zones):
            if zone not in zone_names:
                yield Problem(
                    ("pools", name, "zones", index),
                    f"the network has no subnet in {zone}",
                    f"one of {', '.join(zone_names)}",
                    f"add {zone} to network.zones, or leave the pool's zones out to buy in all",
                )


RESERVED_ADDRESSES = 5
"""AWS keeps the first four addresses and the last one of every subnet."""


def addresses(network: NewNetwork) -> int:
    """Addresses that nodes and pods can have: those of the private subnets, less what AWS keeps of each."""
    return sum(IPv4Network(cidr).num_addresses - RESERVED_ADDRESSES for cidr in network.subnets()[0])


def addresses_needed(fleet: Fleet) -> dict[str, int]:
    """Addresses at maximum by pool, and for `system`: nodes x (pods a node + 1), as the VPC CNI gives each pod one.

    On-demand fallback buys instead of spot, not on top of it, so `nodes.max` counts once.
    """
    needed = {name: pool.nodes.max * (capacity.max_pods(fleet, name) + 1) for name, pool in fleet.pools.items()}
    if isinstance(fleet.cluster, NewCluster):
        system = fleet.cluster.system
        types = [instance for name in system.instances if (instance := catalog.instances().get(name))]
        needed["system"] = system.nodes.max * (max((instance.max_pods for instance in types), default=0) + 1)
    return needed


def _addresses(fleet: Fleet) -> Iterator[Problem]:
    network = fleet.network
    if not isinstance(network, NewNetwork) or not fleet.owns_nodes or any(_network(fleet)):
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


def _pools(fleet: Fleet) -> Iterator[Problem]:
    minor = fleet.cluster.version
    without_image = [name for name, pool in fleet.pools.items() if fleet.owns_nodes and fleet.ami(pool) is None]
    if without_image:
        yield Problem(
            ("cluster", "version"),
            f"the catalogue has no EKS NVIDIA image for Kubernetes {minor}, and pool {without_image[0]} names no image",
            "a version with an image, or ami: {custom: ami-..., driver: ..., kubernetes: ...} in the pool",
            "inv catalog.refresh",
        )
    for name, pool in fleet.pools.items():
        ami = pool.ami
        if isinstance(ami, EksManaged | Custom) and ami.kubernetes != minor:
            leaf = "release" if isinstance(ami, EksManaged) else "kubernetes"
            newest = fleet.eks_release
            yield Problem(
                ("pools", name, "ami", leaf),
                f"the image is for Kubernetes {ami.kubernetes}, the cluster runs {minor}",
                f"an image for {minor}" + (f", such as {newest}" if newest else ""),
                "leave ami out for the newest in the catalogue"
                if newest
                else f"build one (images.ami: {{enabled: true}}), or use {ami.kubernetes}",
            )
        if isinstance(ami, Bottlerocket) and pool.sharing != "none":
            yield Problem(
                ("pools", name, "sharing"),
                "Bottlerocket brings its own device plugin, which Paddock cannot configure for sharing",
                "sharing: none, or an AL2023 image",
            )
        if isinstance(pool.capacity, CapacityBlock) and pool.types[0].quota_class != "P":
            yield Problem(
                ("pools", name, "capacity"),
                f"{pool.instances[0]} is not sold in Capacity Blocks",
                "spot, on-demand or {reserved: cr-...}",
            )


def _images(fleet: Fleet) -> Iterator[Problem]:
    types = catalog.instances()
    for index, name in enumerate(fleet.images.ami.instances):
        if name not in types or types[name].gpu is None:
            with_gpu = [n for n, t in types.items() if t.gpu]
            yield Problem(
                ("images", "ami", "instances", index),
                f"{name} has no GPU to test an image on" if name in types else f'unknown instance type "{name}"',
                "GPU instance types, such as g4dn.xlarge",
                did_you_mean(name, with_gpu),
            )
    yield from ami_build.problems(fleet)
