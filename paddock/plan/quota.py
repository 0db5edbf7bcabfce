"""What a fleet needs of an AWS account's quotas when every pool is at its maximum.

A new account may run no GPU at all, and nobody is told: the autoscaler asks, EC2 refuses, the job waits. What is
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
from paddock.plan.addresses import subnet_needs
from paddock.plan.finding import Finding, Severity

EIP, VPC, NAT, INTERFACES, GP3 = "L-0263D0A3", "L-F678F1CE", "L-FE5A380F", "L-DF5E4CA3", "L-7A658B76"


@dataclass(frozen=True, slots=True)
class Part:
    """What one thing contributes. `fallback`: only when there is no spot capacity."""

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
        """What is lacking against the default; 0 when nothing is, or the default is not known."""
        return 0.0 if self.default is None else max(0.0, self.need - self.default)

    @property
    def without_fallback(self) -> float:
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


def need(fleet: Fleet) -> tuple[QuotaNeed, ...]:
    """Everything the fleet needs at its maximum; nothing where this stack buys no nodes."""
    found: list[QuotaNeed] = []
    if fleet.owns_nodes and fleet.holds("cluster"):
        found += _vcpus(fleet)
        found += _blocks(fleet)
        found += _network(fleet)
        found += _interfaces(fleet)
        found += _storage(fleet)
        found += [
            QuotaNeed(
                None, "vpc", f"addresses in private subnet {each.zone}", "address", each.spread, each.has, fleet.region,
                tuple(Part(who, amount, what) for who, amount, what in each.parts), each.note, "network.cidr",
                (each.zone,),
            )
            for each in subnet_needs(fleet)
        ]  # fmt: skip
    elif fleet.holds("images"):
        found += _vcpus(fleet)
    return tuple(found)


def findings(needs: Iterable[QuotaNeed]) -> tuple[Finding, ...]:
    """What a new account lacks, what nobody knows, and subnets that are too small."""
    return tuple(finding for each in needs if (finding := _finding(each)))


def _finding(each: QuotaNeed) -> Finding | None:
    if each.unit == "address":
        return _addresses(each) if each.code is None else _lacking(each)
    if each.default is None:
        message = f"{each.name}: {each.need:g} {each.unit} at most. {each.note}"
        return Finding(
            "QUO002", "info", each.subject, message, "aws service-quotas list-service-quotas --service-code ec2"
        )
    return _lacking(each)


def _lacking(each: QuotaNeed) -> Finding | None:
    if not each.shortfall:
        return None
    spot = f" ({each.without_fallback:g} without fallback)" if each.without_fallback < each.need else ""
    return Finding(
        "QUO001",
        "warning",
        each.subject,
        f"{each.name} ({each.code}): {each.need:g} {each.unit} at most{spot}, and a new account has {each.default:g}. "
        "What yours has, only AWS knows",
        each.request,
    )


def _addresses(each: QuotaNeed) -> Finding | None:
    where = each.zones[0] if each.zones else "each zone"
    if each.default is None:
        message = f"the subnet {where} needs up to {each.need:g} free addresses; its size is not in the stack"
        return Finding("QUO004", "info", each.subject, message, "aws ec2 describe-subnets")
    everything = sum(part.amount for part in each.parts)
    severity: Severity | None = (
        "error" if each.need > each.default else "warning" if everything > each.default else None
    )
    if severity is None:
        return None
    spread = "with nodes spread evenly over zones" if severity == "error" else "if all nodes come up there"
    amount = each.need if severity == "error" else everything
    return Finding(
        "QUO003",
        severity,
        each.subject,
        f"the private subnet of {where} has {each.default:g} addresses, and {amount:g} are needed {spread}: the rest "
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
    for who, family, amount, what in _others(fleet):
        quota = catalog.quota_for(family, "on-demand")
        if quota:
            parts.setdefault(quota.code, []).append(Part(who, amount, what))
    for code, of_quota in parts.items():
        quota = catalog.quotas()[code]
        surge = "A rolling update of a node group starts further nodes first, and needs more for as long"
        yield _needed(fleet, code, of_quota, surge if quota.capacity else "", quota.unit)
    for what, part in unknown:
        note = "AWS's table names no quota for it"
        yield QuotaNeed(
            None, "ec2", f"vCPUs of {what}", "vCPU", part.amount, None, fleet.region, (part,), note, part.who
        )


def _others(fleet: Fleet) -> Iterator[tuple[str, str, float, str]]:
    """System nodes, and the instance that builds images: (who, family, vCPUs, in words)."""
    if isinstance(fleet.cluster, NewCluster) and fleet.holds("cluster"):
        system = fleet.cluster.system
        largest = max((catalog.instance(name) for name in system.instances), key=lambda instance: instance.vcpus)
        what = f"{system.nodes.max} x {largest.vcpus} vCPU"
        yield "cluster.system", largest.family, system.nodes.max * largest.vcpus, what
    if fleet.images.ami.enabled and fleet.holds("images"):
        largest = max((catalog.instance(name) for name in fleet.images.ami.instances), key=lambda each: each.vcpus)
        yield "images.ami", largest.family, largest.vcpus, f"1 x {largest.vcpus} vCPU while an image is built"


def _market(capacity: CapacityName) -> Literal["spot", "on-demand"]:
    """Capacity Reservations count as on demand: AWS refuses one that exceeds that limit (CreateCapacityReservation)."""
    return "spot" if capacity == "spot" else "on-demand"


def _blocks(fleet: Fleet) -> Iterator[QuotaNeed]:
    """Capacity Blocks: the vCPUs are needed, and whether they count nobody says."""
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
