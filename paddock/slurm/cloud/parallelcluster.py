"""Configuration file of AWS ParallelCluster 3, and what its nodes cost by the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.gpu.render.rendered import File, headed
from paddock.slurm.cloud.request import Cloud

FILE = "cluster.yaml"
_SYSTEM = "ubuntu2404"
_IDLE_MINUTES = 10
_ROOT_GIB = 100


def cluster_file(request: Cloud) -> File:
    """Return cluster.yaml: a queue for GPUs and one for CPUs, whose nodes start with the jobs that need them.

    A method's `gpu_type` stays the same: ParallelCluster names a node's GPUs as EC2 does (`t4`, `a10g`, `h100`).
    """
    import yaml

    gpu = [kind for kind in request.types if kind.gpu]
    cpu = [kind for kind in request.types if not kind.gpu]
    queues = [_queue(request, name, types) for name, types in (("gpu", gpu), ("cpu", cpu)) if types]
    document = {
        "Region": request.region,
        "Image": {"Os": _SYSTEM},
        "Imds": {"ImdsSupport": "v2.0"},
        "HeadNode": {
            "InstanceType": request.head,
            "Networking": {"SubnetId": request.head_subnet or request.subnets[0]},
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


def _queue(request: Cloud, name: str, types: list[InstanceType]) -> dict[str, Any]:
    return {
        "Name": name,
        "CapacityType": "SPOT" if request.spot else "ONDEMAND",
        "AllocationStrategy": "price-capacity-optimized" if request.spot else "lowest-price",
        "Networking": {"SubnetIds": list(dict.fromkeys(request.subnets))},
        "ComputeSettings": {"LocalStorage": {"RootVolume": {"Encrypted": True, "Size": _ROOT_GIB}}},
        "ComputeResources": [_resource(request, kind) for kind in types],
    }


def _resource(request: Cloud, kind: InstanceType) -> dict[str, Any]:
    several = request.max > 1 and len(set(request.subnets)) == 1
    return {
        "Name": kind.name.replace(".", "-"),
        "Instances": [{"InstanceType": kind.name}],
        "MinCount": 0,
        "MaxCount": request.max,
        # Nodes of one job talk over EFA; that needs one zone, and a placement group makes it fast.
        **({"Efa": {"Enabled": True}} if kind.efa and several else {}),
        **({"Networking": {"PlacementGroup": {"Enabled": True}}} if kind.efa and several else {}),
    }


@dataclass(frozen=True, slots=True)
class NodePrice:
    """USD an hour of one node, None where no price is known. `as_of` is the day of its source, ISO 8601."""

    instance: str
    usd_per_hour: float | None
    spot: bool
    source: str
    as_of: str | None


def node_prices(request: Cloud) -> tuple[NodePrice, ...]:
    """Return the head node's price, on demand, and then each instance type's."""
    rows = [(request.head_type, False), *((kind, request.spot) for kind in request.types)]
    result = []
    for kind, spot in rows:
        price = kind.prices.get(request.region)
        value = key = None
        if price:
            value, key = (price.spot, price.spot_source) if spot else (price.on_demand, price.on_demand_source)
        origin = catalog.price_sources().get(key) if key else None
        day = origin.as_of.isoformat() if origin and origin.as_of else None
        result.append(NodePrice(kind.name, value, spot, origin.name if origin else "unknown", day))
    return tuple(result)
