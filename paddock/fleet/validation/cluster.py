"""Checks of the cluster: its version, its API endpoint and its system nodes."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, collapse_addresses

from paddock import catalog
from paddock.fleet.errors import Problem, did_you_mean
from paddock.fleet.model.cluster import ExistingCluster, KubeconfigCluster, NewCluster, same_principal
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.network import ExistingNetwork

# docs.aws.amazon.com/eks/latest/userguide/config-cluster-endpoint.html: "The block cannot include reserved addresses".
# Those of documentation pass, for they are in every example.
_NOT_PUBLIC = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by carriers",
    "127.0.0.0/8": "the machine itself",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.168.0.0/16": "private",
    "224.0.0.0/3": "multicast and reserved",
}


def problems(fleet: Fleet) -> Iterator[Problem]:
    cluster, network = fleet.cluster, fleet.network
    if isinstance(cluster, ExistingCluster) and not isinstance(network, ExistingNetwork):
        yield Problem(
            ("network",),
            f"the cluster {cluster.existing} exists already, so its network does too",
            "network: {existing: {vpc: vpc-..., subnets: [subnet-..., subnet-...]}}",
            "name the cluster's VPC and the private subnets for GPU nodes",
        )
    if not isinstance(cluster, KubeconfigCluster):  # that one is not necessarily EKS
        yield from _unknown_version(cluster)
    elif fleet.logs.jobs.to == "cloudwatch":
        yield Problem(
            ("logs", "jobs", "to"),
            "a cluster that is reached by kubeconfig alone cannot give a pod a role in AWS",
            "none, or an EKS cluster",
            "leave logs.jobs out, and keep the logs of arc-runners with what collects that cluster's logs",
        )
    yield from _shared(fleet)
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
    for index, cidr in enumerate(() if allow == "any" else allow):
        if within := next((net for net in _NOT_PUBLIC if IPv4Network(cidr).subnet_of(IPv4Network(net))), None):
            yield Problem(
                ("cluster", "endpoint", "allow", index),
                f"{cidr} is not on the internet ({_NOT_PUBLIC[within]}), so nobody there reaches the public endpoint",
                "networks as the internet sees them, such as 203.0.113.0/24",
                "remove it: within the VPC, and what is connected to it, the private endpoint is always on",
            )
    yield from _principals(cluster)
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


def _shared(fleet: Fleet) -> Iterator[Problem]:
    names, others = fleet.cluster.arc, fleet.controller_of_others
    if others and others[0] in (names.systems, names.runners, names.privileged):
        yield Problem(
            ("cluster", "arc", "controller"),
            f"the controller is in {others[0]}, which this stack makes for itself, and deletes with itself",
            "a controller in a namespace that is not this fleet's",
            "cluster.arc.suffix: paddock gives this fleet's namespaces names of their own",
        )
    for name, pool in fleet.pools.items():
        if getattr(fleet.cluster, "device_plugin", "own") == "theirs" and pool.sharing != "none":
            yield Problem(
                ("pools", name, "sharing"),
                "cluster.devicePlugin: theirs leaves it to others how GPUs are shared",
                "sharing: none",
                "leave sharing out, or cluster.devicePlugin: own",
            )


def _principals(cluster: NewCluster) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name, access in cluster.access.items():
        first = next((key for key, principal in seen.items() if same_principal(principal, access.principal)), None)
        if first is None:
            seen[name] = access.principal
            continue
        paths = "" if seen[first] == access.principal else ", written with two paths"
        yield Problem(
            ("cluster", "access", name, "principal"),
            f"{first} and {name} are the same principal{paths}, which EKS gives one access entry",
            "a principal of its own",
            f"remove {first} or {name}",
        )


def _unknown_version(cluster: NewCluster | ExistingCluster) -> Iterator[Problem]:
    minors = list(catalog.eks_versions())
    if cluster.version not in minors:
        yield Problem(
            ("cluster", "version"),
            f"EKS has no Kubernetes {cluster.version} that the catalogue knows",
            f"{minors[0]} to {minors[-1]}",
            f'write version: "{minors[-1]}", or run ./inv catalog.refresh if EKS has a newer one',
        )
