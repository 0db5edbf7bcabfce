"""The fleet's own words for a report: pools and runners as plain data, with what the catalogue knows of them."""

from __future__ import annotations

from datetime import date
from typing import Any

import paddock
from paddock import catalog
from paddock.catalog import InstanceType
from paddock.fleet import Fleet, nodes
from paddock.fleet.model.pool import (
    Bottlerocket,
    CapacityBlock,
    Custom,
    EksManaged,
    GpuPool,
    Mig,
    Mps,
    Reserved,
    TimeSlicing,
)
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.sizing.capacity import runner_request


def describe(fleet: Fleet) -> dict[str, Any]:
    """What a plan's document says of the fleet beside its resources; all of it plain JSON."""
    return {
        "github": {"url": fleet.github.url},
        "pools": [_pool(fleet, name) for name in fleet.pools],
        "runners": [_runner(fleet, name) for name in fleet.runners],
    }


def provenance(today: date) -> dict[str, Any]:
    """When and with which facts a plan was made."""
    return {
        "planned": today.isoformat(),
        "paddock": paddock.__version__,
        "catalog": [
            {
                "file": stamp.file,
                "as_of": stamp.as_of.isoformat(),
                "max_age_days": stamp.max_age_days,
                "sources": [{"name": source.name, "url": source.url} for source in stamp.sources],
            }
            for stamp in catalog.stamps()
        ],
    }


def sharing(pool: GpuPool) -> str:
    """How jobs share a GPU of the pool; empty where they do not."""
    match pool.sharing:
        case TimeSlicing(time_slicing=n):
            return f"time-slicing {n}"
        case Mps(mps=n):
            return f"MPS {n}"
        case Mig(mig=profile):
            return f"MIG {profile}"
        case _:
            return ""


def image(fleet: Fleet, pool: GpuPool) -> str:
    """The node image of the pool, in a word or two."""
    if not fleet.owns_nodes:
        return "as it is"
    match fleet.ami(pool):
        case EksManaged(release=release):
            return f"EKS NVIDIA {release}"
        case Bottlerocket(bottlerocket=release):
            return f"Bottlerocket NVIDIA {release}"
        case Custom(custom=ami, driver=driver):
            return f"{ami}, driver {driver}"
        case _:
            return "unknown"


def _pool(fleet: Fleet, name: str) -> dict[str, Any]:
    pool = fleet.pools[name]
    match pool.capacity:
        case Reserved(reserved=reservation) | CapacityBlock(capacity_block=reservation):
            pass
        case _:
            reservation = ""
    return {
        "name": name,
        "gpu": {
            "name": pool.gpu.name,
            "architecture": pool.gpu.architecture,
            "compute_capability": pool.gpu.compute_capability,
        },
        "instances": [_instance(pool, instance) for instance in pool.types],
        "capacity": list(nodes.capacities(pool)) if fleet.owns_nodes else [],
        "reservation": reservation,
        "nodes": {"min": pool.nodes.min, "max": pool.nodes.max},
        "zones": list(pool.zones),
        "sharing": sharing(pool),
        "shares": pool.replicas,
        "image": image(fleet, pool),
    }


def _instance(pool: GpuPool, instance: InstanceType) -> dict[str, Any]:
    return {
        "name": instance.name,
        "vcpus": instance.vcpus,
        "memory": format_memory(instance.memory_mib),
        "gpus": instance.gpu_count,
        "gpu_fraction": instance.gpu_fraction,
        "gpu_memory": format_memory(instance.gpu_memory_mib),
        "shares": pool.advertised(instance),
        "nvme_gb": instance.nvme_total_gb,
    }


def _runner(fleet: Fleet, name: str) -> dict[str, Any]:
    runner, request = fleet.runners[name], runner_request(fleet, name)
    return {
        "name": name,
        "scale_set": fleet.scale_set(name),
        "pool": runner.pool,
        "labels": list(fleet.labels(name)),
        "gpus": runner.gpus,
        "cpu": format_cpu(request.cpu_m),
        "memory": format_memory(request.memory_mib),
        "min": runner.min,
        "max": fleet.max_runners(name),
        "warm": [{"at": entry.at, "min": entry.min, "time_zone": entry.time_zone} for entry in runner.warm],
        "container": runner.container,
        "image": runner.image or fleet.images.runner or "",
        "priority": runner.priority,
        "volumes": {key: volume.mount for key, volume in runner.volumes.items()},
    }
