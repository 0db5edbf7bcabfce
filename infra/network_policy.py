"""Network policies inside the cluster, in the few forms that the fleet uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.component import LINK_LOCAL, Component

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
    egress: Sequence[Egress] | None = None,
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


def anywhere(but: Sequence[str] = ()) -> Peer:
    """Every address but `but`, IMDS and the agent that hands out Pod Identity credentials."""
    return Peer(ip_block=k8s.networking.v1.IPBlockArgs(cidr="0.0.0.0/0", except_=[LINK_LOCAL, *but]))


def pods_of(namespace: str | None = None, labels: Mapping[str, str] | None = None) -> Peer:
    """Pods of one namespace, or of all; those with `labels`, or all."""
    name = {"kubernetes.io/metadata.name": namespace} if namespace else None
    return Peer(
        namespace_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=name),
        pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels) if labels else None,
    )


def https_in(cidr: pulumi.Input[str]) -> Egress:
    """HTTPS to a range."""
    to = [Peer(ip_block=k8s.networking.v1.IPBlockArgs(cidr=cidr))]
    return Egress(to=to, ports=[Port(port=443, protocol="TCP")])


def name_service() -> Egress:
    """The cluster's DNS."""
    ports = [Port(port=53, protocol="UDP"), Port(port=53, protocol="TCP")]
    return Egress(to=[pods_of("kube-system", {"k8s-app": "kube-dns"})], ports=ports)
