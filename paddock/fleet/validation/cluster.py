"""Checks of the cluster: its version's support, its API endpoint and its system nodes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from ipaddress import IPv4Network, collapse_addresses
from typing import Literal

from paddock import catalog
from paddock.fleet.errors import Problem, did_you_mean
from paddock.fleet.model.cluster import ExistingCluster, NewCluster
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.network import ExistingNetwork


def problems(fleet: Fleet) -> Iterator[Problem]:
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
