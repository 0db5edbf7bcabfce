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
from paddock.fleet.sizing import addresses
from paddock.fleet.sizing.serving import system_request
from paddock.fleet.sizing.system_nodes import LISTENER, system_load, system_node
from paddock.plan.finding import Edit, Finding, Severity, put

EIP, VPC, NAT, INTERFACES, GP3 = "L-0263D0A3", "L-F678F1CE", "L-FE5A380F", "L-DF5E4CA3", "L-7A658B76"
NODE_GROUPS, NODES_A_GROUP = "L-6D54EA21", "L-BD136A63"


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
    updating: float = 0
    """What is needed on top while nodes or the control plane are replaced, where that is reckoned apart."""
    fix: str = ""
    """What to write, where no request to AWS helps."""
    edits: tuple[Edit, ...] = ()
    """The same as edits of the stack file."""

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
        needs += _node_groups(fleet)
        needs += _system_pods(fleet)
        needs += _subnets(fleet)
    elif fleet.holds("images"):
        needs += _vcpus(fleet)
    return tuple(needs)


def findings(needs: Iterable[QuotaNeed]) -> tuple[Finding, ...]:
    """Return unknown defaults, and subnets that are too small. What to ask AWS for is in `paddock.plan.before_up`."""
    return tuple(finding for need in needs if (finding := _finding(need)))


def _finding(need: QuotaNeed) -> Finding | None:
    if need.unit == "address" and need.code is None:
        return _addresses(need)
    if need.unit == "pod":
        return _pods(need)
    if need.default is None:
        message = f"{need.name}: {need.need:g} {need.unit} at most. {need.note}"
        return Finding(
            "QUO002", "info", need.subject, message, "aws service-quotas list-service-quotas --service-code ec2"
        )
    return None


def _addresses(need: QuotaNeed) -> Finding | None:
    where = need.zones[0] if need.zones else "each zone"
    if need.default is None:
        message = f"the subnet {where} needs up to {need.need:g} free addresses; its size is not in the stack"
        return Finding("QUO004", "info", need.subject, message, "aws ec2 describe-subnets")
    cases: tuple[tuple[Severity, float, str], ...] = (
        ("error", need.need, "with nodes spread evenly over zones"),
        ("warning", need.need + need.updating, "while an update starts new nodes before it stops old ones"),
        ("warning", sum(part.amount for part in need.parts), "if all nodes come up there"),
    )
    for severity, amount, when in cases:
        if amount > need.default:
            return Finding(
                "QUO003",
                severity,
                need.subject,
                f"the private subnet of {where} has {need.default:g} addresses, and {amount:g} are needed {when}: a "
                f"node takes whole interfaces of them ({', '.join(f'{part.who} {part.what}' for part in need.parts)})",
                "a larger network.cidr, such as 10.0.0.0/16; or smaller pools.<name>.nodes.max",
            )
    return None


def _pods(need: QuotaNeed) -> Finding | None:
    if not need.shortfall:
        return None
    return Finding(
        "QUO005",
        "error",
        need.subject,
        f"{need.name} are {need.default:g} at most, by the addresses of their types, and {need.need:g} must run there: "
        f"{', '.join(part.what for part in need.parts)}. A runner without its listener gets no job",
        need.fix,
        need.edits,
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
    """Network interfaces: those that the CNI attaches to a full node, and those of the network itself."""
    nodes = {
        f"pools.{name}": (pool.nodes.max, addresses.of_node(fleet, pool).interfaces)
        for name, pool in fleet.pools.items()
    }
    if isinstance(fleet.cluster, NewCluster):
        system = fleet.cluster.system
        nodes["cluster.system"] = (system.nodes.max, addresses.of_system_node(system).interfaces)
    parts = [Part(who, most * each, f"{most} x {each}") for who, (most, each) in nodes.items()]
    if isinstance(fleet.cluster, NewCluster):
        parts.append(Part("cluster", addresses.CONTROL_PLANE, "of the control plane"))
    if isinstance(fleet.network, NewNetwork) and (endpoints := len(fleet.network.endpoints)):
        zones = fleet.network.zone_count
        parts.append(Part("network.endpoints", endpoints * zones, f"{endpoints} x {zones} zones"))
    yield _needed(fleet, INTERFACES, parts, "", "interface")


def _subnets(fleet: Fleet) -> Iterator[QuotaNeed]:
    """Addresses of each private subnet.

    `need` is for nodes that spread evenly over their zones; the sum of `parts` is for all of them in one zone.
    """
    for subnet in addresses.subnets(fleet):
        note = (
            f"{addresses.RESERVED_ADDRESSES} of the subnet's are AWS's own; a node takes whole interfaces; an update "
            f"of nodes and control plane takes up to {subnet.updating} more"
        )
        yield QuotaNeed(
            None, "vpc", f"addresses in private subnet {subnet.zone}", "address", subnet.need, subnet.size,
            fleet.region, tuple(Part(use.who, use.most, use.what) for use in subnet.uses), note, "network.cidr",
            (subnet.zone,), subnet.updating,
        )  # fmt: skip


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


def _node_groups(fleet: Fleet) -> Iterator[QuotaNeed]:
    """Managed node groups of the cluster, one for each way a pool buys; and the nodes of the largest."""
    groups, nodes = [], []
    for name, pool in fleet.pools.items():
        groups.append(Part(f"pools.{name}", len(capacities(pool)), " and ".join(capacities(pool))))
        nodes.append(Part(f"pools.{name}", pool.nodes.max, "nodes.max"))
    if isinstance(fleet.cluster, NewCluster):
        groups.append(Part("cluster.system", 1, "one group"))
        nodes.append(Part("cluster.system", fleet.cluster.system.nodes.max, "nodes.max"))
    note = "" if isinstance(fleet.cluster, NewCluster) else "Those that the cluster has already come on top"
    yield _needed(fleet, NODE_GROUPS, groups, note, "group")
    largest = max(nodes, key=lambda part: part.amount)
    yield _needed(fleet, NODES_A_GROUP, [largest], "Of the largest group", "node")


def _system_pods(fleet: Fleet) -> Iterator[QuotaNeed]:
    """Pods that must run on system nodes at all times, of which a node holds as many as it has addresses for."""
    if not isinstance(fleet.cluster, NewCluster):
        return
    system = fleet.cluster.system
    listeners = len(fleet.runners) if fleet.holds("runners") else 0
    a_node = min(system_node(fleet, catalog.instance(name)).pods for name in system.instances)
    controllers = system_load(fleet).pods
    parts = [
        Part("runners", listeners * LISTENER.pods, f"{listeners} listeners, one a runner"),
        Part("cluster.system", controllers, f"{controllers} pods of controllers"),
    ]
    if fleet.served:
        pods = system_request(fleet).pods
        parts.append(Part("serving", pods, f"{pods} of serving, Ray's head and KubeRay's operator"))
    need = sum(part.amount for part in parts)
    enough = put("cluster", "system", "nodes", "max", value=ceil(need / a_node))
    yield QuotaNeed(
        None, "eks", "Pods on system nodes", "pod", need, system.nodes.max * a_node, fleet.region, tuple(parts),
        f"A node holds {a_node} besides its DaemonSets; runner pods of container jobs come on top",
        "cluster.system.nodes.max",
        fix=f"{enough}, or larger cluster.system.instances",
        edits=(enough,),
    )  # fmt: skip


def _needed(fleet: Fleet, code: str, parts: list[Part], note: str, unit: str) -> QuotaNeed:
    quota = catalog.quotas()[code]
    subject = parts[0].who if len({part.who for part in parts}) == 1 else "pools"
    amount = sum(part.amount for part in parts)
    return QuotaNeed(
        code, quota.service, quota.name, unit, amount, quota.default, fleet.region, tuple(parts), note, subject
    )
