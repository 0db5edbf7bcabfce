"""Configuration file of AWS ParallelCluster 3."""

from __future__ import annotations

from typing import Any

from paddock.catalog import InstanceType
from paddock.gpu.render.rendered import File, headed
from paddock.slurm.cloud.request import ClusterRequest

FILE = "cluster.yaml"
_SYSTEM = "ubuntu2404"
_IDLE_MINUTES = 10
_ROOT_GIB = 100


def cluster_file(request: ClusterRequest) -> File:
    """Return cluster.yaml: a queue for GPUs and one for processors, whose nodes start with the jobs that need them.

    A method's `gpu_type` stays the same: ParallelCluster names a node's GPUs as EC2 does (`t4`, `a10g`, `h100`).
    """
    import yaml

    gpu = [kind for kind in request.instances if kind.gpu]
    cpu = [kind for kind in request.instances if not kind.gpu]
    queues = [_queue(request, name, types) for name, types in (("gpu", gpu), ("cpu", cpu)) if types]
    document = {
        "Region": request.region,
        "Image": {"Os": _SYSTEM},
        "Imds": {"ImdsSupport": "v2.0"},
        "HeadNode": {
            "InstanceType": request.head.name,
            "Networking": {"SubnetId": request.head_subnet},
            **({"Ssh": {"KeyName": request.key}} if request.key else {}),
            "LocalStorage": {"RootVolume": {"Encrypted": True, "Size": _ROOT_GIB}},
            "Imds": {"Secured": True},
            # A shell through Systems Manager, so that no port is open and no key is needed.
            "Iam": {"AdditionalIamPolicies": [{"Policy": "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"}]},
        },
        "Scheduling": {
            "Scheduler": "slurm",
            "SlurmSettings": {"ScaledownIdletime": _IDLE_MINUTES, "EnableMemoryBasedScheduling": True},
            "SlurmQueues": queues,
        },
        "Monitoring": {"Logs": {"CloudWatch": {"Enabled": True, "RetentionInDays": 14}}},
    }
    return headed(FILE, yaml.safe_dump(document, sort_keys=False, width=1000))


def _queue(request: ClusterRequest, name: str, types: list[InstanceType]) -> dict[str, Any]:
    return {
        "Name": name,
        "CapacityType": "SPOT" if request.spot else "ONDEMAND",
        "AllocationStrategy": "price-capacity-optimized" if request.spot else "lowest-price",
        "Networking": {"SubnetIds": list(request.subnets)},
        "ComputeSettings": {"LocalStorage": {"RootVolume": {"Encrypted": True, "Size": _ROOT_GIB}}},
        "ComputeResources": [_resource(request, kind) for kind in types],
    }


def _resource(request: ClusterRequest, kind: InstanceType) -> dict[str, Any]:
    several = request.max_nodes > 1 and len(request.subnets) == 1
    return {
        "Name": kind.name.replace(".", "-"),
        "Instances": [{"InstanceType": kind.name}],
        "MinCount": 0,
        "MaxCount": request.max_nodes,
        # Nodes of one job talk over EFA; that needs one zone, and a placement group makes it fast.
        **({"Efa": {"Enabled": True}} if kind.efa and several else {}),
        **({"Networking": {"PlacementGroup": {"Enabled": True}}} if kind.efa and several else {}),
    }
