"""Addresses of private subnets against nodes and pods at the maximum: the VPC CNI gives every pod one."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from paddock.fleet import Fleet, NewCluster, NewNetwork
from paddock.fleet.sizing.addresses import RESERVED_ADDRESSES, node_addresses, system_node_addresses, usable_addresses

CONTROL_PLANE = 4
"""Interfaces that EKS puts into the cluster's subnets, at most: two to four."""


@dataclass(frozen=True, slots=True)
class SubnetNeed:
    """One private subnet. `spread` is what it needs when nodes spread evenly over their zones; the sum of `parts` is
    what it needs when all of them come up there. `has` is None for a subnet whose size the stack does not say.
    """

    zone: str
    has: int | None
    spread: int
    parts: tuple[tuple[str, int, str], ...]
    note: str


def subnet_needs(fleet: Fleet) -> tuple[SubnetNeed, ...]:
    """Return the needs of every private subnet: a node takes its pods' addresses, at most `maxPods`, and its own."""
    sizes = _sizes(fleet)
    zones = tuple(sizes)
    needs = []
    for zone, has in sizes.items():
        spread, parts = 0, []
        for name, pool in fleet.pools.items():
            pool_zones = pool.zones or zones
            if zone not in pool_zones and isinstance(fleet.network, NewNetwork):
                continue
            per_node = node_addresses(fleet, pool)
            spread += ceil(pool.nodes.max / len(pool_zones)) * per_node
            parts.append((f"pools.{name}", pool.nodes.max * per_node, f"{pool.nodes.max} nodes x {per_node}"))
        if isinstance(fleet.cluster, NewCluster):
            system = fleet.cluster.system
            per_node = system_node_addresses(system)
            spread += ceil(system.nodes.max / len(zones)) * per_node
            parts.append(("cluster.system", system.nodes.max * per_node, f"{system.nodes.max} nodes x {per_node}"))
        endpoints = len(fleet.network.endpoints) if isinstance(fleet.network, NewNetwork) else 0
        fixed = endpoints + CONTROL_PLANE
        parts.append(("network", fixed, f"{endpoints} interface endpoints, {CONTROL_PLANE} of the control plane"))
        note = f"{RESERVED_ADDRESSES} of the subnet's are AWS's own; the CNI keeps some warm beside those in use"
        needs.append(SubnetNeed(zone, has, spread + fixed, tuple(parts), note))
    return tuple(needs)


def _sizes(fleet: Fleet) -> dict[str, int | None]:
    """Usable addresses by zone, or by subnet id where the network is adopted."""
    network = fleet.network
    if not isinstance(network, NewNetwork):
        return dict.fromkeys(network.existing.subnets)
    private, _ = network.subnets()
    return {zone: usable_addresses(cidr) for zone, cidr in zip(network.zone_names(fleet.region), private, strict=True)}
