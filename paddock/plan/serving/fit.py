"""Fit of served models: weights and cache in the memory of a GPU, replicas on the nodes of a pool.

The memory is placed as `serve.plan` and a cluster of Ray place it; the pods are counted as those of runners.
"""

from __future__ import annotations

from dataclasses import dataclass

from paddock.catalog import InstanceType
from paddock.fleet import Fleet, GpuPool, ServedModel
from paddock.fleet.model.pool import Mig
from paddock.fleet.sizing.capacity import Resources, available
from paddock.fleet.sizing.serving import weights_format, worker_request
from paddock.models.presets import preset
from paddock.modes.config import PRESETS
from paddock.plan.fit import Dimension, fit_counts
from paddock.serve.placement.changes import changes
from paddock.serve.placement.device import WITHOUT_BF16, Device
from paddock.serve.placement.memory import MIB
from paddock.serve.placement.plan import Change, mib_up
from paddock.serve.placement.request import Policy, Request
from paddock.serve.placement.search import group_of


@dataclass(frozen=True, slots=True)
class ServedFit:
    """A served model on an instance type: replicas a node, and MiB of each of its GPUs.

    `allowed_mib` is what the resource mode gives it of `gpu_memory_mib`; `lacking_mib` is 0 where it fits.
    `changes` are those after which it would.
    """

    model: str
    pool: str
    instance: str
    per_node: int
    limiting: Dimension
    request: Resources
    available: Resources
    dtype: str
    gpu_memory_mib: int
    weights_mib: int
    cache_mib: int
    needed_mib: int
    allowed_mib: int
    lacking_mib: int
    changes: tuple[Change, ...] = ()


def served_fits(fleet: Fleet) -> tuple[ServedFit, ...]:
    """Return the fit of every served model on every instance type of its pools.

    Its settings must have passed `paddock.plan.serving.check`.
    """
    return tuple(
        _fit(fleet, model, fleet.pools[name], instance)
        for model in fleet.served
        for name in model.pools
        for instance in fleet.pools[name].types
    )


def lacks(pool: GpuPool) -> tuple[str, ...]:
    """Return the formats of weights that the pool's GPU does not compute."""
    return WITHOUT_BF16 if pool.gpu.supports("bf16") is False else ()


def _fit(fleet: Fleet, model: ServedModel, pool: GpuPool, instance: InstanceType) -> ServedFit:
    request, room = worker_request(fleet, model, pool), available(fleet, pool, instance)
    counts = fit_counts(room, request)
    limiting = min(counts, key=lambda dimension: counts[dimension])
    placement, devices, policy = _placement(fleet, model, pool, instance)
    placed = max(
        group_of(placement, devices[: model.tensor_parallel], policy).devices, key=lambda placed: placed.lacking
    )
    return ServedFit(
        model=model.name,
        pool=pool.name,
        instance=instance.name,
        per_node=counts[limiting],
        limiting=limiting,
        request=request,
        available=room,
        dtype=weights_format(fleet, model),
        gpu_memory_mib=devices[0].memory_mib or 0,
        weights_mib=mib_up(placed.memory.weights),
        cache_mib=mib_up(placed.memory.cache),
        needed_mib=mib_up(placed.memory.needed),
        allowed_mib=placed.allowed // MIB,
        lacking_mib=mib_up(placed.lacking),
        changes=changes(placement, devices, policy) if placed.lacking else (),
    )


def _placement(
    fleet: Fleet, model: ServedModel, pool: GpuPool, instance: InstanceType
) -> tuple[Request, tuple[Device, ...], Policy]:
    """Return the model, the GPUs of a new node and what the mode allows, as a placement takes them."""
    request = Request(preset(model.model), weights_format(fleet, model), model.context, model.concurrency)
    policy = Policy(
        "cuda",
        reserve=1 - PRESETS[model.mode].max_vram_usage_percent,
        tensor_parallel=model.tensor_parallel,
    )
    part = pool.gpu.mig_profile(pool.sharing.mig) if isinstance(pool.sharing, Mig) else None
    memory = part.memory_gib * 1024 if part else instance.gpu_memory_mib
    count = max(model.tensor_parallel, pool.gpu_resources_per_node(instance))
    devices = tuple(
        Device("node", "cuda", index, memory, memory, pool.gpu.name, lacks=lacks(pool), part=0 if part else None)
        for index in range(count)
    )
    return request, devices, policy
