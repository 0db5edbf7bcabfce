"""Network policies inside the cluster, in the few forms that the fleet uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, ip_address, ip_network
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.component import LINK_LOCAL, Component
from paddock.fleet import Fleet, NewCluster
from paddock.fleet.model.network import PRIVATE_RANGES

Egress = k8s.networking.v1.NetworkPolicyEgressRuleArgs
Ingress = k8s.networking.v1.NetworkPolicyIngressRuleArgs
Peer = k8s.networking.v1.NetworkPolicyPeerArgs
Port = k8s.networking.v1.NetworkPolicyPortArgs


def network_policy(
    owner: Component,
    name: str,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    *,
    pods: Mapping[str, str] | None = None,
    egress: Sequence[pulumi.Input[Egress]] | None = None,
    ingress: Sequence[Ingress] | None = None,
) -> k8s.networking.v1.NetworkPolicy:
    """Lets `pods` (all of the namespace by default) do what is listed, and nothing else of a kind that is not None."""
    kinds: dict[str, Any] = {"Ingress": ingress, "Egress": egress}
    return k8s.networking.v1.NetworkPolicy(
        name,
        metadata=metadata,
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=pods),
            policy_types=[kind for kind, rules in kinds.items() if rules is not None],
            egress=list(egress) if egress else None,
            ingress=list(ingress) if ingress else None,
        ),
        opts=owner.child(),
    )


def tcp(*ports: int) -> list[Port]:
    """Return ports as a network policy has them."""
    return [Port(port=port, protocol="TCP") for port in ports]


def anywhere() -> Peer:
    """Every address but IMDS and the agent that hands out Pod Identity credentials."""
    return Peer(ip_block=k8s.networking.v1.IPBlockArgs(cidr="0.0.0.0/0", except_=[LINK_LOCAL]))


def internet(vpc: pulumi.Input[Sequence[str]]) -> Peer:
    """Every public address outside the ranges of `vpc`, which need not be private ones."""
    shut = pulumi.Output.from_input(vpc).apply(lambda ranges: [LINK_LOCAL, *PRIVATE_RANGES, *filter(_public, ranges)])
    return Peer(ip_block=k8s.networking.v1.IPBlockArgs(cidr="0.0.0.0/0", except_=shut))


def _public(cidr: str) -> bool:
    return not any(IPv4Network(cidr).subnet_of(IPv4Network(private)) for private in PRIVATE_RANGES)


def pods_of(namespace: str | None = None, labels: Mapping[str, str] | None = None) -> Peer:
    """Pods of one namespace, or of all; those with `labels`, or all."""
    name = {"kubernetes.io/metadata.name": namespace} if namespace else None
    return Peer(
        namespace_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=name),
        pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels) if labels else None,
    )


def addresses_in(cidrs: Sequence[pulumi.Input[str]], ports: Sequence[int] = ()) -> Egress:
    """Ranges, by TCP on some ports or by everything on all."""
    to = [Peer(ip_block=k8s.networking.v1.IPBlockArgs(cidr=cidr)) for cidr in cidrs]
    return Egress(to=to, ports=tcp(*ports) or None)


def kubernetes_api(owner: Component, fleet: Fleet) -> list[pulumi.Input[Egress]]:
    """The Kubernetes API by its service's address, and where others chose the CNI by its servers' addresses too."""
    if isinstance(fleet.cluster, NewCluster):
        # The VPC CNI looks at where a pod calls, before the API's service address is exchanged for an endpoint's.
        return [addresses_in([f"{IPv4Network(fleet.cluster.service_cidr)[1]}/32"], [443])]
    name, options = f"{owner.name}-kubernetes-api", owner.child()
    service = k8s.core.v1.Service.get(name, "default/kubernetes", opts=options)
    servers = k8s.discovery.v1.EndpointSlice.get(name, "default/kubernetes", opts=options)
    return [
        addresses_in([service.spec.apply(lambda spec: _one(str(spec.cluster_ip)))], [443]),
        pulumi.Output.all(servers.endpoints, servers.ports).apply(
            lambda slice_: addresses_in(
                [_one(address) for endpoint in slice_[0] for address in endpoint["addresses"]],
                [port["port"] for port in slice_[1]],
            )
        ),
    ]


def _one(address: str) -> str:
    return str(ip_network(ip_address(address)))


def name_service() -> Egress:
    """The cluster's DNS."""
    ports = [Port(port=53, protocol="UDP"), *tcp(53)]
    return Egress(to=[pods_of("kube-system", {"k8s-app": "kube-dns"})], ports=ports)
