"""A GPU pool: tainted nodes of one GPU model that come from zero when jobs wait and go when they end."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws as aws

from infra.cluster.control_plane import Cluster
from infra.cluster.node import launch_template
from infra.component import Component
from infra.gpu import user_data
from infra.network.vpc import Network
from paddock.fleet import Fleet, nodes
from paddock.fleet.model.pool import (
    BOTTLEROCKET_SYSTEM_GIB,
    GP3_IOPS,
    GP3_THROUGHPUT,
    Bottlerocket,
    CapacityBlock,
    Custom,
    EksManaged,
    Reserved,
)
from paddock.fleet.model.pool import GpuPool as Pool
from paddock.fleet.sizing.capacity import max_pods


class GpuPool(Component):
    """One launch template, and a node group for each way the pool buys capacity."""

    def __init__(
        self,
        name: str,
        pool: Pool,
        fleet: Fleet,
        cluster: Cluster,
        network: Network,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        self.pool, self.fleet, self.cluster, self.network = pool, fleet, cluster, network
        template = self._template()
        self.node_groups = {capacity: self._node_group(capacity, template) for capacity in nodes.capacities(self.pool)}
        self.register_outputs({"nodeGroups": {kind: group.id for kind, group in self.node_groups.items()}})

    def _template(self) -> aws.ec2.LaunchTemplate:
        pool, disk = self.pool, self.pool.root_disk
        volume = {"size": disk.size // 1024, "iops": disk.iops, "throughput": disk.throughput}
        bottlerocket = isinstance(self.fleet.ami(pool), Bottlerocket)
        system = {"size": BOTTLEROCKET_SYSTEM_GIB, "iops": GP3_IOPS, "throughput": GP3_THROUGHPUT}
        return launch_template(
            self,
            self.name,
            self.fleet,
            devices={"/dev/xvda": system, "/dev/xvdb": volume} if bottlerocket else {"/dev/xvda": volume},
            user_data=self._user_data(),
            **_purchase(pool),
            **({"image_id": pool.ami.custom} if isinstance(pool.ami, Custom) else {}),
        )

    def _user_data(self) -> pulumi.Input[str]:
        pool, pods = self.pool, max_pods(self.fleet, self.pool)
        match self.fleet.ami(pool):
            case Bottlerocket():
                return user_data.bottlerocket(pool, pods)
            case Custom():
                labels = nodes.labels(self.fleet, self.pool)
                return pulumi.Output.all(**self.cluster.join).apply(
                    lambda cluster: user_data.al2023(pool, pods, user_data.Join(cluster, labels, nodes.TAINT))
                )
            case _:
                return user_data.al2023(pool, pods)

    def _node_group(self, capacity: nodes.CapacityName, template: aws.ec2.LaunchTemplate) -> aws.eks.NodeGroup:
        fleet, pool = self.fleet, self.pool
        least = nodes.min_nodes(pool, capacity)
        return aws.eks.NodeGroup(
            f"{self.name}-{capacity}",
            cluster_name=self.cluster.eks_name,
            node_role_arn=self.cluster.node_role.arn,
            subnet_ids=self.network.subnet_ids(pool.zones),
            capacity_type=nodes.EKS_CAPACITY[capacity],
            # A capacity block's type is in the launch template, and EKS takes it from one place only.
            instance_types=None if isinstance(pool.capacity, CapacityBlock) else list(pool.instances),
            scaling_config={"min_size": least, "max_size": pool.nodes.max, "desired_size": least},
            labels=nodes.labels(fleet, pool),
            taints=[aws.eks.NodeGroupTaintArgs(**nodes.TAINT.for_eks())],
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            update_config={
                "max_unavailable": pool.update.max_unavailable,
                "update_strategy": pool.update.strategy.upper(),
            },
            node_repair_config={"enabled": pool.repair},
            tags={**fleet.tags, **nodes.template_tags(fleet, pool)},
            # The autoscaler owns the size from the first boot on.
            opts=self.child(ignore_changes=["scalingConfig.desiredSize"], depends_on=self.cluster.ready),
            **self._image(),
        )

    def _image(self) -> dict[str, Any]:
        match self.fleet.ami(self.pool):
            case EksManaged(release=release):
                kind = "AL2023_x86_64_NVIDIA"
            case Bottlerocket(bottlerocket=release):
                kind = "BOTTLEROCKET_x86_64_NVIDIA"
            case _:
                # The launch template names the image, and EKS wants neither version nor release. Only a new node group
                # goes from Amazon's images to others, and without the type nothing would ask for one.
                return {"ami_type": "CUSTOM"}
        return {"ami_type": kind, "version": self.fleet.kubernetes(self.pool), "release_version": release}


def _purchase(pool: Pool) -> dict[str, Any]:
    """Launch-template options for capacity that was bought beforehand."""
    match pool.capacity:
        case Reserved(reserved=reservation):
            preference = {"capacity_reservation_preference": "capacity-reservations-only"}
            options: dict[str, Any] = {}
        case CapacityBlock(capacity_block=reservation):
            preference = {}
            options = {
                "instance_type": pool.instances[0],
                "instance_market_options": {"market_type": "capacity-block"},
            }
        case _:
            return {}
    target = {"capacity_reservation_target": {"capacity_reservation_id": reservation}}
    return {**options, "capacity_reservation_specification": {**preference, **target}}
