"""Quotas of an AWS account that a fleet needs when every pool is at its maximum.

A new account may run no GPU at all, without a message: the autoscaler asks, EC2 refuses, the job waits. What is
compared here is the default of a new account; only AWS knows what this one has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

from paddock import catalog
from paddock.fleet import Fleet, NewCluster, NewNetwork
from paddock.fleet.nodes import CapacityName, capacities
from paddock.fleet.sizing.addresses import RESERVED_ADDRESSES, node_addresses, system_node_addresses, usable_addresses
from paddock.plan.finding import Finding, Severity

EIP, VPC, NAT, INTERFACES, GP3 = "L-0263D0A3", "L-F678F1CE", "L-FE5A380F", "L-DF5E4CA3", "L-7A658B76"
CONTROL_PLANE = 4
"""Interfaces that EKS puts into the cluster's subnets, at most: two to four."""


@dataclass(frozen=True, slots=True)
class Part:
    """Contribution of a pool or a part of the network. `fallback`: only when there is no spot capacity."""

    who: str
    amount: float
    what: str
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class QuotaNeed:
    """`need` and `default` in `unit`. `code` is None where no quota is named; `default` None where it is not known.

    For addresses, `default` is what the subnet has, which no request changes.
    """

    code: str | None
    service: str
    name: str
    unit: str
    need: float
    default: float | None
    region: str
    parts: tuple[Part, ...]
    note: str = ""
    subject: str = "pools"
    zones: tuple[str, ...] = field(default=())

    @property
    def shortfall(self) -> float:
        """Return what is lacking against the default; 0 when nothing is, or the default is not known."""
        return 0.0 if self.default is None else max(0.0, self.need - self.default)

    @property
    def need_without_fallback(self) -> float:
        """`need` as long as there is spot capacity."""
        return sum(part.amount for part in self.parts if not part.fallback)

    @property
    def request(self) -> str:
        """The command that asks AWS for it; empty where none does."""
        if self.code is None or not self.shortfall:
            return ""
        return (
            f"aws service-quotas request-service-quota-increase --region {self.region} --service-code {self.service} "
            f"--quota-code {self.code} --desired-value {ceil(self.need)}"
        )


def quota_needs(fleet: Fleet) -> tuple[QuotaNeed, ...]:
    """Return the quota that the fleet needs at its maximum; nothing where this stack buys no nodes."""
    needs: list[QuotaNeed] = []
    if fleet.owns_nodes and fleet.holds("cluster"):
        needs += _vcpus(fleet)
        needs += _blocks(fleet)
        needs += _network(fleet)
        needs += _interfaces(fleet)
        needs += _storage(fleet)
        needs += _subnets(fleet)
    elif fleet.holds("images"):
        needs += _vcpus(fleet)
    return tuple(needs)


def findings(needs: Iterable[QuotaNeed]) -> tuple[Finding, ...]:
    """Return what a new account lacks, unknown defaults, and subnets that are too small."""
    return tuple(finding for need in needs if (finding := _finding(need)))


def _finding(need: QuotaNeed) -> Finding | None:
    if need.unit == "address":
        return _addresses(need) if need.code is None else _lacking(need)
    if need.default is None:
        message = f"{need.name}: {need.need:g} {need.unit} at most. {need.note}"
        return Finding(
            "QUO002", "info", need.subject, message, "aws service-quotas list-service-quotas --service-code ec2"
        )
    return _lacking(need)


def _lacking(need: QuotaNeed) -> Finding | None:
    if not need.shortfall:
        return None
    spot = f" ({need.need_without_fallback:g} without fallback)" if need.need_without_fallback < need.need else ""
    return Finding(
        "QUO001",
        "warning",
        need.subject,
        f"{need.name} ({need.code}): {need.need:g} {need.unit} at most{spot}, and a new account has {need.default:g}. "
        "What yours has, only AWS knows",
        need.request,
    )


def _addresses(need: QuotaNeed) -> Finding | None:
    where = need.zones[0] if need.zones else "each zone"
    if need.default is None:
        message = f"the subnet {where} needs up to {need.need:g} free addresses; its size is not in the stack"
        return Finding("QUO004", "info", need.subject, message, "aws ec2 describe-subnets")
    total = sum(part.amount for part in need.parts)
    severity: Severity | None = "error" if need.need > need.default else "warning" if total > need.default else None
    if severity is None:
        return None
    spread = "with nodes spread evenly over zones" if severity == "error" else "if all nodes come up there"
    amount = need.need if severity == "error" else total
    return Finding(
        "QUO003",
        severity,
        need.subject,
        f"the private subnet of {where} has {need.default:g} addresses, and {amount:g} are needed {spread}: the rest "
        "of the pods would get none",
        "a larger network.cidr, such as 10.0.0.0/16; or smaller pools.<name>.nodes.max",
    )


def _vcpus(fleet: Fleet) -> Iterator[QuotaNeed]:
    """vCPUs by quota. A node may be of the pool's largest type."""
    parts: dict[str, list[Part]] = {}
    unknown: list[tuple[str, Part]] = []
    buys = fleet.owns_nodes and fleet.holds("cluster")
    for name, pool in fleet.pools.items() if buys else ():
        for index, capacity in enumerate(capacities(pool)):
            if capacity == "capacity-block":
                continue
            market = _market(capacity)
            of_code: dict[str | None, int] = {}
            for instance in pool.types:
                quota = catalog.quota_for(instance.family, market)
                code = quota.code if quota else None
                of_code[code] = max(of_code.get(code, 0), instance.vcpus)
            for code, vcpus in of_code.items():
                part = Part(f"pools.{name}", pool.nodes.max * vcpus, f"{pool.nodes.max} x {vcpus} vCPU", index > 0)
                if code is None:
                    unknown.append((f"{pool.types[0].family} {market}", part))
                else:
                    parts.setdefault(code, []).append(part)
    for who, family, amount, description in _other_vcpus(fleet):
        quota = catalog.quota_for(family, "on-demand")
        if quota:
            parts.setdefault(quota.code, []).append(Part(who, amount, description))
    for code, of_quota in parts.items():
        quota = catalog.quotas()[code]
        surge = "A rolling update of a node group starts further nodes first, and needs more for as long"
        yield _needed(fleet, code, of_quota, surge if quota.capacity else "", quota.unit)
    for description, part in unknown:
        note = "AWS's table names no quota for it"
        yield QuotaNeed(
            None, "ec2", f"vCPUs of {description}", "vCPU", part.amount, None, fleet.region, (part,), note, part.who
        )


def _other_vcpus(fleet: Fleet) -> Iterator[tuple[str, str, float, str]]:
    """System nodes, and the instance that builds images: (who, family, vCPUs, in words)."""
    if isinstance(fleet.cluster, NewCluster) and fleet.holds("cluster"):
        system = fleet.cluster.system
        largest = max((catalog.instance(name) for name in system.instances), key=lambda instance: instance.vcpus)
        description = f"{system.nodes.max} x {largest.vcpus} vCPU"
        yield "cluster.system", largest.family, system.nodes.max * largest.vcpus, description
    if fleet.images.ami.enabled and fleet.holds("images"):
        largest = max(
            (catalog.instance(name) for name in fleet.images.ami.instances), key=lambda instance: instance.vcpus
        )
        yield "images.ami", largest.family, largest.vcpus, f"1 x {largest.vcpus} vCPU while an image is built"


def _market(capacity: CapacityName) -> Literal["spot", "on-demand"]:
    """Capacity Reservations count as on demand: AWS refuses one that exceeds that limit (CreateCapacityReservation)."""
    return "spot" if capacity == "spot" else "on-demand"


def _blocks(fleet: Fleet) -> Iterator[QuotaNeed]:
    """Return the vCPUs of Capacity Blocks. AWS does not document whether a quota counts them."""
    for name, pool in fleet.pools.items():
        if capacities(pool) != ("capacity-block",):
            continue
        vcpus = max(instance.vcpus for instance in pool.types)
        part = Part(f"pools.{name}", pool.nodes.max * vcpus, f"{pool.nodes.max} x {vcpus} vCPU")
        yield QuotaNeed(
            None,
            "ec2",
            f"vCPUs in Capacity Blocks ({pool.types[0].family})",
            "vCPU",
            part.amount,
            None,
            fleet.region,
            (part,),
            "Whether instances in a Capacity Block count against On-Demand quotas, no source we read says",
            f"pools.{name}",
        )


def _network(fleet: Fleet) -> Iterator[QuotaNeed]:
    network = fleet.network
    if not isinstance(network, NewNetwork) or not fleet.makes_network:
        return
    yield _needed(fleet, VPC, [Part("network", 1, "one VPC")], "Of all VPCs in the region", "VPC")
    gateways = {"none": 0, "single": 1, "per-zone": network.zone_count}[network.nat]
    if gateways:
        part = Part("network.nat", gateways, f"one for each of {gateways} NAT gateways")
        yield _needed(fleet, EIP, [part], "Of all addresses in the region", "address")
        yield _needed(fleet, NAT, [Part("network.nat", 1, "one in a zone")], "In each zone", "gateway")


def _interfaces(fleet: Fleet) -> Iterator[QuotaNeed]:
    """Network interfaces: as many as a node's type can have, which the CNI attaches as pods come."""
    parts = [
        Part(f"pools.{name}", pool.nodes.max * most, f"{pool.nodes.max} x {most}")
        for name, pool in fleet.pools.items()
        for most in [max(instance.enis for instance in pool.types)]
    ]
    if isinstance(fleet.cluster, NewCluster):
        system = fleet.cluster.system
        most = max(catalog.instance(name).enis for name in system.instances)
        parts.append(Part("cluster.system", system.nodes.max * most, f"{system.nodes.max} x {most}"))
    yield _needed(fleet, INTERFACES, parts, "", "interface")


def _subnets(fleet: Fleet) -> Iterator[QuotaNeed]:
    """Addresses of each private subnet: a node takes its pods' addresses, at most `maxPods`, and its own.

    `need` is for nodes that spread evenly over their zones; the sum of `parts` is for all of them in one zone.
    """
    sizes = _subnet_sizes(fleet)
    zones = tuple(sizes)
    for zone, size in sizes.items():
        spread, parts = 0, []
        for name, pool in fleet.pools.items():
            pool_zones = pool.zones or zones
            if zone not in pool_zones and isinstance(fleet.network, NewNetwork):
                continue
            per_node = node_addresses(fleet, pool)
            spread += ceil(pool.nodes.max / len(pool_zones)) * per_node
            parts.append(Part(f"pools.{name}", pool.nodes.max * per_node, f"{pool.nodes.max} nodes x {per_node}"))
        if isinstance(fleet.cluster, NewCluster):
            system = fleet.cluster.system
            per_node = system_node_addresses(system)
            spread += ceil(system.nodes.max / len(zones)) * per_node
            parts.append(Part("cluster.system", system.nodes.max * per_node, f"{system.nodes.max} nodes x {per_node}"))
        endpoints = len(fleet.network.endpoints) if isinstance(fleet.network, NewNetwork) else 0
        fixed = endpoints + CONTROL_PLANE
        parts.append(Part("network", fixed, f"{endpoints} interface endpoints, {CONTROL_PLANE} of the control plane"))
        note = f"{RESERVED_ADDRESSES} of the subnet's are AWS's own; the CNI keeps some warm beside those in use"
        yield QuotaNeed(
            None, "vpc", f"addresses in private subnet {zone}", "address", spread + fixed, size, fleet.region,
            tuple(parts), note, "network.cidr", (zone,),
        )  # fmt: skip


def _subnet_sizes(fleet: Fleet) -> dict[str, int | None]:
    """Usable addresses by zone, or by subnet id where the network is adopted."""
    network = fleet.network
    if not isinstance(network, NewNetwork):
        return dict.fromkeys(network.existing.subnets)
    private, _ = network.subnets()
    return {zone: usable_addresses(cidr) for zone, cidr in zip(network.zone_names(fleet.region), private, strict=True)}


def _storage(fleet: Fleet) -> Iterator[QuotaNeed]:
    """gp3 root volumes, TiB."""
    parts = []
    for name, pool in fleet.pools.items():
        nodes, disk = pool.nodes.max, pool.root_disk.size
        parts.append(Part(f"pools.{name}", nodes * disk / 1024 / 1024, f"{nodes} x {disk // 1024} GiB"))
    if isinstance(fleet.cluster, NewCluster):
        nodes, disk = fleet.cluster.system.nodes.max, fleet.cluster.system.disk
        parts.append(Part("cluster.system", nodes * disk / 1024 / 1024, f"{nodes} x {disk // 1024} GiB"))
    yield _needed(fleet, GP3, parts, "Volumes of runners come on top" if fleet.uses_ebs_volumes else "", "TiB")


def _needed(fleet: Fleet, code: str, parts: list[Part], note: str, unit: str) -> QuotaNeed:
    quota = catalog.quotas()[code]
    subject = parts[0].who if len({part.who for part in parts}) == 1 else "pools"
    amount = sum(part.amount for part in parts)
    return QuotaNeed(
        code, quota.service, quota.name, unit, amount, quota.default, fleet.region, tuple(parts), note, subject
    )
