"""EKS add-ons that every node has, beside those the control plane comes with."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra.cluster.control_plane import Cluster
from infra.component import POD_IDENTITY, Component
from paddock.catalog import eks_addons
from paddock.fleet import Fleet, NewCluster, nodes

STORAGE_CLASS = "gp3-encrypted"


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
            if fleet.cluster.metrics_server:
                self._addon(
                    "metrics-server",
                    configuration_values=json.dumps({"nodeSelector": nodes.system_selector(fleet)}),
                )
        if fleet.uses_ebs_volumes:
            self._ebs(fleet)
        self.register_outputs({})

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

    def _ebs(self, fleet: Fleet) -> None:
        role = self.role(
            f"{self.name}-ebs-csi", POD_IDENTITY, ["arn:aws:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy"]
        )
        driver = self._addon(
            "aws-ebs-csi-driver",
            configuration_values=json.dumps({"controller": {"nodeSelector": nodes.system_selector(fleet)}}),
            pod_identity_associations=[{"role_arn": role.arn, "service_account": "ebs-csi-controller-sa"}],
        )
        k8s.storage.v1.StorageClass(
            f"{self.name}-{STORAGE_CLASS}",
            metadata={"name": STORAGE_CLASS},
            provisioner="ebs.csi.aws.com",
            parameters={"type": "gp3", "encrypted": "true"},
            volume_binding_mode="WaitForFirstConsumer",
            opts=self.child(depends_on=[driver]),
        )
