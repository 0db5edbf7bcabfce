"""What must hold between the parts of a fleet. Each check yields problems; none stops at the first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from ipaddress import IPv4Network, collapse_addresses
from typing import TYPE_CHECKING, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from paddock import catalog
from paddock.fleet import ami_build, capacity
from paddock.fleet.cluster import ExistingCluster, KubeconfigCluster, NewCluster
from paddock.fleet.errors import Problem, did_you_mean
from paddock.fleet.network import ExistingNetwork, NewNetwork
from paddock.fleet.pool import Bottlerocket, CapacityBlock, Custom, EksManaged, Mps

if TYPE_CHECKING:
    from paddock.fleet.fleet import Fleet

SCALE_SET_NAME_MAX = 45
"""ARC's scale-set chart refuses longer names."""
_NOT_TEXT = re.compile(r"^(y|n|yes|no|on|off|true|false|null|~|[-+]?[0-9][0-9_.e+-]*)$", re.IGNORECASE)
"""Words that ARC's chart, which writes names without quotes, would turn into something else than text."""


def problems(fleet: Fleet) -> Iterator[Problem]:
    """Every problem of the fleet that does not depend on the day."""
    yield from _cluster(fleet)
    yield from _network(fleet)
    yield from _addresses(fleet)
    yield from _pools(fleet)
    yield from _runners(fleet)
    yield from _labels(fleet)
    yield from _images(fleet)


def support(version: str, level: Literal["standard", "extended"], today: date) -> Iterator[Problem]:
    """The Kubernetes minor must be known, and supported on `today`."""
    key, known = ("cluster", "version"), catalog.eks_versions()
    usable = [
        name for name, minor in known.items() if minor.support_on(today) in {"standard", level}
    ]  # fmt: skip
    expected = f"one of {', '.join(usable)}"
    if version not in known:
        yield Problem(key, f"EKS has no Kubernetes {version} that the catalogue knows", expected, "inv catalog.refresh")
        return
    minor = known[version]
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
        known = catalog.instances()
        plain = [n for n, t in known.items() if t.gpu is None]
        if name not in known or known[name].gpu:
            yield Problem(
                ("cluster", "system", "instances", index),
                f"{name} has a GPU: system nodes would pay for it"
                if name in known
                else f'unknown instance type "{name}"',
                f"one of {', '.join(plain)}",
                "" if name in known else did_you_mean(name, plain),
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
    for field, given in (("privateSubnets", network.private_subnets), ("publicSubnets", network.public_subnets)):
        if given and len(given) != zones:
            yield Problem(("network", field), f"{len(given)} ranges for {zones} zones", f"{zones} ranges, one a zone")
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
        types = [known for name in system.instances if (known := catalog.instances().get(name))]
        needed["system"] = system.nodes.max * (max((known.max_pods for known in types), default=0) + 1)
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


def _runners(fleet: Fleet) -> Iterator[Problem]:
    for name, runner in fleet.runners.items():
        scale_set = fleet.scale_set(name)
        if len(scale_set) > SCALE_SET_NAME_MAX:
            yield Problem(
                ("runners", name, "name"),
                f"the scale-set name {scale_set} has {len(scale_set)} characters",
                f"at most {SCALE_SET_NAME_MAX}, the limit of ARC's chart",
                f"write name: {scale_set[:SCALE_SET_NAME_MAX].rstrip('-')}",
            )
        group = runner.group or fleet.github.runner_group
        for key, word, what in ((("name",), scale_set, "scale-set name"), (("group",), group, "runner group")):
            if _NOT_TEXT.match(word):
                yield Problem(
                    ("runners", name, *key),
                    f"{word} as a {what} is no text to YAML, and ARC's chart writes it without quotes",
                    "a name with another letter in it",
                    f"such as {'gpu-' if what.startswith('scale') else 'runners-'}{word.lower()}",
                )
        if runner.group is not None and runner.group.lower() != "default" and fleet.github.scope == "repository":
            yield Problem(
                ("runners", name, "group"),
                "a repository has no runner groups; organisations and enterprises do",
                "no group",
                "remove group",
            )
        for index, warm in enumerate(runner.warm):
            if _unknown_time_zone(warm.time_zone):
                yield Problem(
                    ("runners", name, "warm", index, "timeZone"),
                    f'there is no time zone "{warm.time_zone}"',
                    "a name of the IANA database, such as America/New_York",
                    did_you_mean(warm.time_zone, available_timezones()),
                )
        if runner.pool not in fleet.pools:
            yield Problem(
                ("runners", name, "pool"),
                f'there is no pool "{runner.pool}"',
                f"one of {', '.join(fleet.pools)}",
                did_you_mean(runner.pool, fleet.pools),
            )
            continue
        pool = fleet.pools[runner.pool]
        if pool.replicas > 1 and runner.gpus > 1:
            yield Problem(
                ("runners", name, "gpus"),
                f"pool {runner.pool} shares each GPU {pool.replicas} ways, and a runner can hold one share only",
                "gpus: 1",
                "write gpus: 1, or use a pool that does not share its GPUs",
            )
            continue
        if runner.shm is not None and isinstance(pool.sharing, Mps):
            yield Problem(
                ("runners", name, "shm"),
                f"pool {runner.pool} shares its GPUs by MPS, where /dev/shm is one of 64 MiB for all runners of a node",
                "no shm",
                "remove shm, or use a pool that shares its GPUs by timeSlicing or MIG",
            )
        most = max(pool.advertised(instance) for instance in pool.types)
        if runner.gpus > most:
            largest = max(pool.types, key=pool.advertised)
            yield Problem(
                ("runners", name, "gpus"),
                f"{runner.gpus} GPUs are more than a node of pool {runner.pool} has ({largest.name}: {most})",
                f"at most {most}",
                _larger_instance(fleet, runner.pool, runner.gpus),
            )
        whole = all(pool.advertised(instance) == runner.gpus for instance in pool.types)
        if runner.container == "dind" and not whole:
            yield Problem(
                ("runners", name, "container"),
                "Docker-in-Docker is privileged and would see every GPU of a node that it shares",
                "a runner that takes all GPUs of its node",
                "write container: kubernetes-novolume, or use a pool of 1-GPU instances",
            )


def _unknown_time_zone(name: str) -> bool:
    """Whether Kubernetes would refuse it. A machine without the IANA database cannot tell, and lets it pass."""
    return not _is_time_zone(name) and _is_time_zone("America/New_York")


def _is_time_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _larger_instance(fleet: Fleet, pool: str, gpus: int) -> str:
    model = fleet.pools[pool].types[0].gpu
    fits = [t for t in catalog.instances().values() if t.gpu == model and t.gpu_count >= gpus]
    smallest = min(fits, key=lambda t: (t.gpu_count, t.vcpus), default=None)
    if smallest is None:
        return f"no instance type has {gpus} of them; ask for fewer"
    return f"make a pool of {smallest.name}, which has {smallest.gpu_count}"


def _labels(fleet: Fleet) -> Iterator[Problem]:
    seen: dict[frozenset[str], str] = {}
    names: dict[str, str] = {}
    for name in fleet.runners:
        scale_set, labels = fleet.scale_set(name), frozenset(label.lower() for label in fleet.labels(name))
        if labels in seen:
            field = "labels" if fleet.runners[name].labels else "name"
            yield Problem(
                ("runners", name, field),
                f"runners {seen[labels]} and {name} have the same labels: {', '.join(fleet.labels(name))}",
                "a set of labels that no other runner has; GitHub does not say which of two would get a job",
                f"add a label of its own, such as {scale_set}",
            )
        elif scale_set in names:
            yield Problem(
                ("runners", name, "name"),
                f"runners {names[scale_set]} and {name} have the same scale-set name {scale_set}",
                "a name of its own",
                f"leave name out: it is {name} by default" if name != scale_set else "write another name",
            )
        seen.setdefault(labels, name)
        names.setdefault(scale_set, name)


def _images(fleet: Fleet) -> Iterator[Problem]:
    known = catalog.instances()
    for index, name in enumerate(fleet.images.ami.instances):
        if name not in known or known[name].gpu is None:
            with_gpu = [n for n, t in known.items() if t.gpu]
            yield Problem(
                ("images", "ami", "instances", index),
                f"{name} has no GPU to test an image on" if name in known else f'unknown instance type "{name}"',
                "GPU instance types, such as g4dn.xlarge",
                did_you_mean(name, with_gpu),
            )
    yield from ami_build.problems(fleet)
