"""cluster-autoscaler: nodes come when pods wait, spot before on-demand, and go when they are idle."""

from __future__ import annotations

import pulumi

from infra import versions
from infra.cluster.control_plane import Cluster
from infra.component import POD_IDENTITY, Component, allow, policy
from infra.helm import charts
from infra.helm.releases import release
from infra.manifests import manifest
from paddock.fleet import Fleet, KubeconfigCluster, nodes
from paddock.fleet.model.runner import LOWEST_PRIORITY

NAMESPACE = "kube-system"
SERVICE_ACCOUNT = "cluster-autoscaler"
CLUSTER_TAG = "eks:cluster-name"
"""Tag that EKS itself puts on the Auto Scaling group of every managed node group (kubernetes/autoscaler,
cluster-autoscaler/proposals/circumvent-tag-limit-aws.md)."""


class Autoscaler(Component):
    """One Helm release, and a role that may resize this cluster's groups and no others."""

    def __init__(self, name: str, fleet: Fleet, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        assert not isinstance(fleet.cluster, KubeconfigCluster)  # noqa: S101 - whose nodes are somebody else's
        owned = {"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": fleet.cluster_name}}
        actions = manifest("actions")
        groups = self.account().apply(
            lambda account: policy(
                allow(actions["autoscaler-read"]),
                allow(
                    ["eks:DescribeNodegroup"],
                    f"arn:aws:eks:{fleet.region}:{account}:nodegroup/{fleet.cluster_name}/*",
                ),
                allow(
                    actions["autoscaler-act"],
                    f"arn:aws:autoscaling:{fleet.region}:{account}:autoScalingGroup:*",
                    Condition=owned,
                ),
            )
        )
        role = self.role(name, POD_IDENTITY, inline=groups)
        identity = self.pod_identity(cluster.eks_name, NAMESPACE, SERVICE_ACCOUNT, role, cluster.identity)
        release(
            self,
            name,
            charts.AUTOSCALER,
            fleet.mirror,
            namespace=NAMESPACE,
            values=manifest(
                "autoscaler",
                cluster=fleet.cluster_name,
                region=fleet.region,
                tag=versions.CLUSTER_AUTOSCALER[fleet.cluster.version],
                account=SERVICE_ACCOUNT,
                delay=f"{fleet.cluster.scale_down_delay}m",
                cutoff=LOWEST_PRIORITY,
                selector=nodes.system_selector(fleet),
            ),
            depends_on=[identity, *self.permissions, *cluster.ready],
        )
        self.register_outputs({})
