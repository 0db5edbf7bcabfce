"""Addresses of the private subnets, and those that nodes take: the VPC CNI gives every pod one."""

from __future__ import annotations

from ipaddress import IPv4Network

from paddock import catalog
from paddock.fleet.model.cluster import NewCluster, SystemNodes
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.network import NewNetwork
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.sizing.capacity import max_pods

RESERVED_ADDRESSES = 5
"""AWS keeps the first four addresses and the last one of every subnet."""


def usable_addresses(cidr: str) -> int:
    """Return the addresses of a subnet that nodes and pods can have."""
    return IPv4Network(cidr).num_addresses - RESERVED_ADDRESSES


def addresses(network: NewNetwork) -> int:
    """Return the usable addresses of all private subnets."""
    return sum(map(usable_addresses, network.subnets()[0]))


def node_addresses(fleet: Fleet, pool: GpuPool) -> int:
    """Return the addresses that a node of the pool takes: its own and one a pod."""
    return max_pods(fleet, pool) + 1


def system_node_addresses(system: SystemNodes) -> int:
    """Return the addresses that a system node takes, of the type with the most pods. Unknown types are left out."""
    types = (catalog.instances().get(name) for name in system.instances)
    return max((instance.max_pods for instance in types if instance), default=0) + 1


def addresses_needed(fleet: Fleet) -> dict[str, int]:
    """Return the addresses at maximum by pool, and for `system`.

    On-demand fallback buys instead of spot, not on top of it, so `nodes.max` counts once.
    """
    needed = {name: pool.nodes.max * node_addresses(fleet, pool) for name, pool in fleet.pools.items()}
    if isinstance(fleet.cluster, NewCluster):
        system = fleet.cluster.system
        needed["system"] = system.nodes.max * system_node_addresses(system)
    return needed
