"""Addresses of the private subnets: what nodes take as the VPC CNI does, and what EKS and the network itself take.

The CNI takes whole interfaces, not an address a pod: it attaches another one as long as fewer addresses than one
interface has are free, and stops at the node's maxPods (aws/amazon-vpc-cni-k8s v1.23.1, pkg/ipamd/ipamd.go,
isDatastorePoolTooLow; 2026-08-20).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from math import ceil

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.fleet.model.cluster import NewCluster, SystemNodes
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.network import NewNetwork
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.sizing.capacity import address_limit, max_pods

RESERVED_ADDRESSES = 5
"""AWS keeps the first four addresses and the last one of every subnet."""
PREFIX = 16
"""Addresses of a prefix, which are next to each other: a /28."""
CONTROL_PLANE = 4
"""Interfaces that EKS puts into the cluster's subnets, at most: two to four, all in one subnet or not
(docs.aws.amazon.com/eks/latest/userguide/network-reqs.html, 2026-11-28)."""
CONTROL_PLANE_UPDATE = 5
"""Free addresses that EKS asks for to update a cluster, at most: the new interfaces come before the old ones go
(docs.aws.amazon.com/eks/latest/userguide/update-cluster.html, 2026-11-28)."""
SURGE_PER_ZONE = 2
"""Nodes a zone that EKS starts first to update a node group, at most, or as many as may be unavailable where that is
more (docs.aws.amazon.com/eks/latest/userguide/managed-node-update-behavior.html, 2026-11-28)."""


@dataclass(frozen=True, slots=True)
class Cni:
    """Settings of the VPC CNI. The defaults are a new cluster's: pulumi-eks writes WARM_ENI_TARGET=1, and no other."""

    prefixes: bool = False
    """ENABLE_PREFIX_DELEGATION: prefixes of 16 addresses instead of single ones."""
    by_address: bool = False
    """WARM_IP_TARGET or MINIMUM_IP_TARGET: as many addresses as are wanted instead of whole interfaces."""
    minimum: int = 0
    """MINIMUM_IP_TARGET."""
    elsewhere: bool = False
    """AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG: pods' addresses come from subnets of their own."""


DEFAULT_CNI = Cni()


@dataclass(frozen=True, slots=True)
class Taken:
    """Interfaces and addresses that a full node takes of its subnet."""

    interfaces: int
    addresses: int

    def __str__(self) -> str:
        return f"{self.addresses} addresses of {self.interfaces} interface{'' if self.interfaces == 1 else 's'}"


def taken(instance: InstanceType, pods: int, cni: Cni = DEFAULT_CNI) -> Taken:
    """Return what a node of this type takes for so many pods. The first address of an interface is its own."""
    each, wanted = instance.ipv4_per_eni - 1, max(pods, cni.minimum)
    if cni.elsewhere:
        return Taken(1, 1)
    if cni.prefixes:
        prefixes = min(ceil(wanted / PREFIX), instance.enis * each)
        interfaces = ceil(prefixes / each)
        return Taken(interfaces, prefixes * PREFIX + interfaces)
    interfaces = min(ceil(wanted / each), instance.enis)
    if cni.by_address:
        return Taken(interfaces, min(wanted, interfaces * each) + interfaces)
    return Taken(interfaces, interfaces * instance.ipv4_per_eni)


def of_node(fleet: Fleet, pool: GpuPool, cni: Cni = DEFAULT_CNI) -> Taken:
    """Return what a node of the pool takes, of the type that takes most."""
    pods = max_pods(fleet, pool)
    return max((taken(instance, pods, cni) for instance in pool.types), key=lambda took: took.addresses)


def of_system_node(system: SystemNodes, cni: Cni = DEFAULT_CNI) -> Taken:
    """Return what a system node takes, of the type that takes most. Unknown types are left out."""
    types = (catalog.instances().get(name) for name in system.instances)
    took = [taken(instance, address_limit(instance), cni) for instance in types if instance]
    return max(took, key=lambda each: each.addresses, default=Taken(1, 1))


def usable_addresses(cidr: str) -> int:
    """Return the addresses of a subnet that AWS leaves."""
    return IPv4Network(cidr).num_addresses - RESERVED_ADDRESSES


def addresses(network: NewNetwork) -> int:
    """Return the usable addresses of all private subnets."""
    return sum(map(usable_addresses, network.subnets()[0]))


@dataclass(frozen=True, slots=True)
class Use:
    """Addresses that one part takes of a subnet."""

    who: str
    spread: int
    """With nodes spread evenly over their zones."""
    most: int
    """With all of them in this one."""
    what: str
    updating: int = 0
    """More of them while nodes or the control plane are replaced."""


@dataclass(frozen=True, slots=True)
class Subnet:
    """A private subnet by its zone, or by its id where the network is adopted, and then of unknown size."""

    zone: str
    size: int | None
    uses: tuple[Use, ...]

    @property
    def need(self) -> int:
        return sum(use.spread for use in self.uses)

    @property
    def updating(self) -> int:
        return sum(use.updating for use in self.uses)


def subnets(fleet: Fleet, cni: Cni = DEFAULT_CNI) -> tuple[Subnet, ...]:
    """Return the private subnets with all that takes addresses of them."""
    sizes = _sizes(fleet)
    return tuple(Subnet(zone, size, tuple(_uses(fleet, zone, tuple(sizes), cni))) for zone, size in sizes.items())


def addresses_needed(fleet: Fleet) -> dict[str, int]:
    """Return the addresses at maximum by pool, for `system`, and for EKS and the endpoints as `network`.

    On-demand fallback buys instead of spot, not on top of it, so `nodes.max` counts once.
    """
    needed = {name: pool.nodes.max * of_node(fleet, pool).addresses for name, pool in fleet.pools.items()}
    if isinstance(fleet.cluster, NewCluster):
        system = fleet.cluster.system
        needed["system"] = system.nodes.max * of_system_node(system).addresses
    endpoints = fleet.network.zone_count * len(fleet.network.endpoints) if isinstance(fleet.network, NewNetwork) else 0
    needed["network"] = endpoints + (CONTROL_PLANE if isinstance(fleet.cluster, NewCluster) else 0)
    return {who: count for who, count in needed.items() if count}


def _uses(fleet: Fleet, zone: str, zones: tuple[str, ...], cni: Cni) -> list[Use]:
    uses = []
    new = isinstance(fleet.network, NewNetwork)
    for name, pool in fleet.pools.items():
        in_zones = pool.zones or zones
        if zone in in_zones or not new:
            groups = 0 if pool.update.strategy == "minimal" else 1 + (pool.fallback == "on-demand")
            surge = groups * _surge(pool.update.max_unavailable, len(in_zones))
            uses.append(_nodes(f"pools.{name}", pool.nodes.max, of_node(fleet, pool, cni), len(in_zones), surge))
    if isinstance(fleet.cluster, NewCluster):
        system = fleet.cluster.system
        took = of_system_node(system, cni)
        uses.append(_nodes("cluster.system", system.nodes.max, took, len(zones), _surge(1, len(zones))))
        if zone in (fleet.cluster.zones or zones):
            what = f"{CONTROL_PLANE} of the control plane"
            uses.append(Use("cluster", CONTROL_PLANE, CONTROL_PLANE, what, CONTROL_PLANE_UPDATE))
    if isinstance(fleet.network, NewNetwork) and (endpoints := len(fleet.network.endpoints)):
        uses.append(Use("network.endpoints", endpoints, endpoints, f"{endpoints} interface endpoints"))
    if fleet.images.ami.enabled and fleet.holds("images") and zone == zones[0]:
        uses.append(Use("images.ami", 1, 1, "1 instance while an image is built"))
    return uses


def _nodes(who: str, most: int, took: Taken, zones: int, surge: int) -> Use:
    return Use(
        who, ceil(most / zones) * took.addresses, most * took.addresses, f"{most} nodes x {took}",
        surge * took.addresses,
    )  # fmt: skip


def _surge(unavailable: int, zones: int) -> int:
    """Return the nodes that a zone has more of while a node group is updated."""
    return max(SURGE_PER_ZONE, ceil(unavailable / zones))


def _sizes(fleet: Fleet) -> Mapping[str, int | None]:
    network = fleet.network
    if not isinstance(network, NewNetwork):
        return dict.fromkeys(network.existing.subnets)
    private, _ = network.subnets()
    return {zone: usable_addresses(cidr) for zone, cidr in zip(network.zone_names(fleet.region), private, strict=True)}
