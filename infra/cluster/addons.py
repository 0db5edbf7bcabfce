"""EKS add-ons that every node has, besides those the control plane comes with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra.cluster.control_plane import Cluster
from infra.component import POD_IDENTITY, Component
from infra.network.policies import Ingress, network_policy, pods_of, tcp
from paddock.catalog import eks_addons
from paddock.fleet import ExistingCluster, Fleet, NewCluster, nodes

STORAGE_CLASS = "gp3-encrypted"
DCGM_ENGINE = 5555
"""Port of DCGM's engine, which the node monitoring agent runs on every GPU node."""
_EBS_DRIVER = "aws-ebs-csi-driver"


class AddOns(Component):
    """Node monitoring and metrics of a cluster made here, and EBS volumes where a runner uses them."""

    def __init__(self, name: str, fleet: Fleet, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        self.cluster, self.minor = cluster, fleet.cluster.version
        if isinstance(fleet.cluster, NewCluster):  # an adopted cluster has its own
            self._addon(
                "eks-node-monitoring-agent",
                # The agent tolerates everything, its DCGM server nothing: without one on a GPU node no Xid is ever
                # seen there, and nothing is repaired.
                configuration_values=json.dumps({"dcgmAgent": {"tolerations": [nodes.TAINT.toleration()]}}),
            )
            self._close_dcgm(fleet)
            if fleet.cluster.metrics_server:
                self._addon(
                    "metrics-server",
                    configuration_values=json.dumps({"nodeSelector": nodes.system_selector(fleet)}),
                )
        if fleet.uses_ebs_volumes:
            present = isinstance(fleet.cluster, ExistingCluster) and _EBS_DRIVER in fleet.cluster.present
            self._storage_class(cluster.ready if present else [self._ebs(fleet)])
        self.register_outputs({})

    def _close_dcgm(self, fleet: Fleet) -> None:
        """Let nobody but the exporter reach DCGM's engine, which asks nobody who they are and injects errors on demand.

        Its port is one of the node, which every pod there may reach: the policy of that pod is what stops a job. The
        agent has the node's network, and passes. Labels: `dcgm-daemonset.yaml` of aws/eks-node-monitoring-agent, read
        2026-11-28.
        """
        monitoring = fleet.monitoring
        exporter = pods_of(monitoring.namespace, {"app.kubernetes.io/name": "dcgm-exporter"})
        network_policy(
            self,
            f"{self.name}-dcgm-server",
            k8s.meta.v1.ObjectMetaArgs(name="dcgm-server", namespace="kube-system"),
            pods={"k8s-app": "dcgm-server"},
            ingress=[Ingress(from_=[exporter], ports=tcp(DCGM_ENGINE))] if monitoring.enabled else [],
        )

    def _addon(self, name: str, **more: Any) -> aws.eks.Addon:
        return aws.eks.Addon(
            f"{self.name}-{name}",
            cluster_name=self.cluster.eks_name,
            addon_name=name,
            addon_version=eks_addons()[self.minor][name],
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            opts=self.child(depends_on=self.cluster.ready),
            **more,
        )

    def _ebs(self, fleet: Fleet) -> aws.eks.Addon:
        role = self.role(
            f"{self.name}-ebs-csi", POD_IDENTITY, ["arn:aws:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy"]
        )
        return self._addon(
            _EBS_DRIVER,
            configuration_values=json.dumps({"controller": {"nodeSelector": nodes.system_selector(fleet)}}),
            pod_identity_associations=[{"role_arn": role.arn, "service_account": "ebs-csi-controller-sa"}],
        )

    def _storage_class(self, needs: Sequence[pulumi.Resource]) -> None:
        k8s.storage.v1.StorageClass(
            f"{self.name}-{STORAGE_CLASS}",
            metadata={"name": STORAGE_CLASS},
            provisioner="ebs.csi.aws.com",
            parameters={"type": "gp3", "encrypted": "true"},
            volume_binding_mode="WaitForFirstConsumer",
            opts=self.child(depends_on=needs),
        )
