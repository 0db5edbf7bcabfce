"""Taint and labels of a pool's nodes, and the resources the autoscaler expects of a node that does not exist yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paddock.fleet.model.cluster import NewCluster
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.pool import Bottlerocket, CapacityBlock, GpuPool, Mig, Mps
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.sizing import capacity
from paddock.labels import BOTTLEROCKET, DEVICE_PLUGIN, POOL

GPU = "nvidia.com/gpu"

CapacityName = Literal["spot", "on-demand", "reserved", "capacity-block"]
EKS_CAPACITY: dict[CapacityName, str] = {
    "spot": "SPOT",
    "on-demand": "ON_DEMAND",
    "reserved": "ON_DEMAND",
    "capacity-block": "CAPACITY_BLOCK",
}


EKS_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
"""A taint's effect: EKS's spelling -> Kubernetes' own."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A node taint. Kubernetes and EKS spell its effect differently; each gets its own."""

    key: str
    value: str
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule"]

    def for_eks(self) -> dict[str, str]:
        effect = next(eks for eks, kubernetes in EKS_EFFECTS.items() if kubernetes == self.effect)
        return {"key": self.key, "value": self.value, "effect": effect}

    def toleration(self) -> dict[str, str]:
        """The toleration of a pod that may run there."""
        return {"key": self.key, "operator": "Equal", "value": self.value, "effect": self.effect}


SPOT_GRACE_SECONDS = 110
"""Seconds that a pod may take to end: a spot instance is gone two minutes after its notice."""

TAINT = Taint(GPU, "true", "NoSchedule")
"""Keeps everything off GPU nodes that does not ask for them."""


def capacities(pool: GpuPool) -> tuple[CapacityName, ...]:
    """The node groups of a pool, in the order they are tried: the cheapest first."""
    if pool.capacity == "spot":
        return ("spot", "on-demand") if pool.fallback == "on-demand" else ("spot",)
    if pool.capacity == "on-demand":
        return ("on-demand",)
    return ("capacity-block",) if isinstance(pool.capacity, CapacityBlock) else ("reserved",)


def min_nodes(pool: GpuPool, capacity: CapacityName) -> int:
    """Return the nodes that one of the pool's node groups keeps: the minimum is kept once, the cheaper way."""
    return pool.nodes.min if capacity == capacities(pool)[0] else 0


def labels(fleet: Fleet, pool: GpuPool) -> dict[str, str]:
    """Return the Kubernetes labels of a pool's nodes."""
    result = {
        **pool.labels,
        GPU: "true",
        "role": "gpu",
        # nodeadm sets it by itself only from Kubernetes 1.35 on; device plugin and DCGM select it.
        f"{GPU}.present": "true",
        # The autoscaler waits for the device plugin on nodes with this label instead of buying another.
        "k8s.amazonaws.com/accelerator": pool.gpu.accelerator_label,
        POOL: pool.name,
    }
    if pool.sharing != "none":
        result["nvidia.com/device-plugin.config"] = pool.name
    if isinstance(pool.sharing, Mps):
        result["nvidia.com/mps.capable"] = "true"
    if isinstance(pool.sharing, Mig):
        result["nvidia.com/mig.profile"] = pool.sharing.mig
    if isinstance(fleet.ami(pool), Bottlerocket):
        result[DEVICE_PLUGIN] = BOTTLEROCKET
    return result


TEMPLATE = "k8s.io/cluster-autoscaler/node-template/resources/"
"""Prefix of the node group's tags that tell the autoscaler what an empty group's nodes offer."""


def template_tags(fleet: Fleet, pool: GpuPool) -> dict[str, str]:
    """Return the tags of a node group for the autoscaler, which imagines a node while the pool is empty.

    The least of any of the pool's types, and allocatable rather than nominal: the autoscaler takes what it
    finds here for what pods can have, and would otherwise buy nodes that the waiting pod does not fit. Labels and
    taints it reads from the same answer of eks:DescribeNodegroup (cluster-autoscaler 1.33.0 to 1.36.1,
    cloudprovider/aws/aws_manager.go, buildNodeFromTemplate), so no tag of the Auto Scaling group repeats them.
    """
    types = [capacity.allocatable(fleet, pool, instance) for instance in pool.types]
    return {
        f"{TEMPLATE}{GPU}": str(min(node.gpus for node in types)),
        f"{TEMPLATE}cpu": format_cpu(min(node.cpu_m for node in types)),
        f"{TEMPLATE}memory": format_memory(min(node.memory_mib for node in types)),
        f"{TEMPLATE}ephemeral-storage": format_memory(min(node.ephemeral_mib for node in types)),
    }


def system_selector(fleet: Fleet) -> dict[str, str]:
    """Return the node selector of controllers and listeners: the on-demand system nodes, if the fleet has any."""
    return {"role": "system"} if isinstance(fleet.cluster, NewCluster) else {}


def gpu_selector(fleet: Fleet, pool: GpuPool) -> dict[str, str]:
    """Return the node selector of the pool. Nodes that are not ours carry only their owner's labels."""
    return {POOL: pool.name} if fleet.owns_nodes else {f"{GPU}.present": "true", **pool.labels}
