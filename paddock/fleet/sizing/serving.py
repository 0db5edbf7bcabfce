"""Pods of serving: what a replica's pod, Ray's head and its operator request."""

from __future__ import annotations

from paddock.fleet.model.fleet import Fleet, once_per_fleet
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.model.serving import ServedModel
from paddock.fleet.sizing.capacity import GIB, Container, Resources, gpu_share

SCRATCH_MIB = 10 * GIB
"""Disk of a pod of Ray: its logs, and objects that no longer fit into memory."""
OPERATOR = Container(100, 256, 512)
"""KubeRay's operator. Some 500 MB serve 500 pods (values of its chart; read 2026-11-24)."""
AUTOSCALER = Container(200, 512, 512)
"""Ray's autoscaler next to the head (KubeRay's own default is 500m and 512Mi; read 2026-11-24)."""


@once_per_fleet
def worker_request(fleet: Fleet, model: ServedModel, pool: GpuPool) -> Resources:
    """Return the request of a replica's pod: its share, by GPUs, of the smallest instance type with enough of them.

    Raises ValueError where no type of the pool has as many, which the fleet's checks refuse.
    """
    gpus = model.tensor_parallel
    types = [instance for instance in pool.types if pool.gpu_resources_per_node(instance) >= gpus]
    shares = [gpu_share(fleet, pool, instance, gpus, Container(0, 0)) for instance in types]
    return Resources(
        cpu_m=min(share.cpu_m for share in shares),
        memory_mib=min(share.memory_mib for share in shares),
        gpus=gpus,
        pods=1,
        ephemeral_mib=SCRATCH_MIB,
    )


def shared_memory(request: Resources) -> int:
    """Return the size of /dev/shm in MiB: Ray's object store, charged to the pod's memory. Ray warns below 30 %."""
    return request.memory_mib * 3 // 10


def head_request(fleet: Fleet) -> Resources:
    """Return the request of the head's pod with the autoscaler in it; nothing without serving."""
    if not fleet.served or fleet.serving is None:
        return Resources(0, 0)
    head = fleet.serving.head
    return Resources(head.cpu + AUTOSCALER.cpu_m, head.memory + AUTOSCALER.memory_mib, pods=1)


def system_request(fleet: Fleet) -> Resources:
    """Return what serving requests of nodes without GPUs: head, operator and gateways; nothing without serving."""
    if not fleet.served or fleet.serving is None:
        return Resources(0, 0)
    gateway = fleet.serving.gateway
    gateways = Resources(gateway.cpu * gateway.replicas, gateway.memory * gateway.replicas, pods=gateway.replicas)
    return head_request(fleet) + Resources(OPERATOR.cpu_m, OPERATOR.memory_mib, pods=1) + gateways


def weights_format(fleet: Fleet, model: ServedModel) -> str:
    """Return the format that computes: as written, else 16 bits that every GPU of the model's pools computes."""
    gpus = [fleet.pools[pool].gpu for pool in model.pools]
    return model.dtype or ("bf16" if all(gpu.supports("bf16") is not False for gpu in gpus) else "fp16")
