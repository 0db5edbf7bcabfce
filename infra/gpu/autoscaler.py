"""cluster-autoscaler: nodes come when pods wait, spot before on-demand, and go when they are idle."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra import versions
from infra.cluster.control_plane import Cluster
from infra.component import POD_IDENTITY, Component, allow, policy
from infra.helm import charts
from infra.helm.releases import release
from paddock.fleet import Fleet, KubeconfigCluster, nodes
from paddock.fleet.model.runner import LOWEST_PRIORITY

NAMESPACE = "kube-system"
SERVICE_ACCOUNT = "cluster-autoscaler"
CLUSTER_TAG = "eks:cluster-name"
"""Tag that EKS itself puts on the Auto Scaling group of every managed node group (kubernetes/autoscaler,
cluster-autoscaler/proposals/circumvent-tag-limit-aws.md)."""

# Higher wins. A managed node group's Auto Scaling group is named after it: eks-<pool>-<capacity>-<hex>-... The hex that
# Pulumi adds is part of the pattern, or the on-demand group of a pool called big-spot would pass for spot.
PRIORITIES = "100:\n- .*-(reserved|capacity-block)-[0-9a-f]{7}-.*\n50:\n- .*-spot-[0-9a-f]{7}-.*\n10:\n- .*\n"

_READ_ACTIONS = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
)
_ACT = ("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup")


class Autoscaler(Component):
    """One Helm release, and a role that may resize this cluster's groups and no others."""

    def __init__(self, name: str, fleet: Fleet, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        assert not isinstance(fleet.cluster, KubeconfigCluster)  # noqa: S101 - whose nodes are somebody else's
        owned = {"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": fleet.cluster_name}}
        groups = self.account().apply(
            lambda account: policy(
                allow(_READ_ACTIONS),
                allow(
                    ["eks:DescribeNodegroup"],
                    f"arn:aws:eks:{fleet.region}:{account}:nodegroup/{fleet.cluster_name}/*",
                ),
                allow(_ACT, f"arn:aws:autoscaling:{fleet.region}:{account}:autoScalingGroup:*", Condition=owned),
            )
        )
        role = self.role(name, POD_IDENTITY, inline=groups)
        identity = aws.eks.PodIdentityAssociation(
            name,
            cluster_name=cluster.eks_name,
            namespace=NAMESPACE,
            service_account=SERVICE_ACCOUNT,
            role_arn=role.arn,
            opts=self.child(depends_on=cluster.identity),
        )
        release(
            self,
            name,
            charts.AUTOSCALER,
            fleet.mirror,
            release_name="cluster-autoscaler",
            namespace=NAMESPACE,
            values={
                "autoDiscovery": {
                    "clusterName": fleet.cluster_name,
                    "tags": [f"{CLUSTER_TAG}={fleet.cluster_name}"],
                },
                "awsRegion": fleet.region,
                "image": {"tag": versions.CLUSTER_AUTOSCALER[fleet.cluster.version]},
                "rbac": {"serviceAccount": {"create": True, "name": SERVICE_ACCOUNT}},
                "expanderPriorities": PRIORITIES,
                "extraArgs": {
                    "expander": "priority,least-waste",
                    "scale-down-unneeded-time": f"{fleet.cluster.scale_down_delay}m",
                    "scale-down-delay-after-add": "5m",
                    "skip-nodes-with-system-pods": False,
                    "skip-nodes-with-local-storage": False,
                    # At the latest after this a spot pool without capacity is passed over, and the on-demand one asked.
                    "max-node-provision-time": "10m",
                    # Below -10 by default a waiting pod buys no node and a running one is killed with its node.
                    "expendable-pods-priority-cutoff": LOWEST_PRIORITY,
                },
                "nodeSelector": nodes.system_selector(fleet),
                "priorityClassName": "system-cluster-critical",
                "resources": {"requests": {"cpu": "100m", "memory": "300Mi"}, "limits": {"memory": "600Mi"}},
                "containerSecurityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 65534,
                    "runAsGroup": 65534,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            },
            depends_on=[identity, *self.permissions, *cluster.ready],
        )
        self.register_outputs({})
