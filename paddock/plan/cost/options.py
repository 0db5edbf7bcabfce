"""What a runner would get and cost on another instance type, and which types could replace its pool's."""

from __future__ import annotations

from dataclasses import dataclass

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.catalog.cuda_match import drives
from paddock.fleet import Fleet
from paddock.fleet.model.pool import GpuPool, Mig
from paddock.fleet.nodes import capacities
from paddock.fleet.sizing.capacity import Share, available, default_share, runner_request
from paddock.fleet.software import driver
from paddock.plan.cost.money import Money, total
from paddock.plan.cost.nodes import instance_price, root_volume


@dataclass(frozen=True, slots=True)
class Option:
    """A runner on nodes of one type: how many, what each gets, what each costs (USD/hour, bought as the pool is)."""

    instance: str
    gpu: str
    same_gpu: bool
    per_node: int
    share: Share
    per_runner: Money


def option(fleet: Fleet, runner: str, instance: InstanceType) -> Option:
    """The runner as if its pool had this type alone. CPU and memory that are not written follow the type."""
    spec = fleet.runners[runner]
    pool = fleet.pools[spec.pool]
    only = _only(fleet, spec.pool, instance)
    if only.pools[spec.pool].gpu_resources_per_node(instance) < spec.gpus:
        share, per_node = Share(spec.cpu or 0, spec.memory or 0), 0
    else:
        share, request = default_share(only, spec), runner_request(only, spec)
        has = available(only, only.pools[spec.pool], instance)
        per_node = max(0, min(h // r for h, r in zip(has.amounts(), request.amounts(), strict=True) if r))
    node = total((instance_price(instance, capacities(pool)[0], fleet.region), root_volume(fleet, pool)), "USD/hour")
    price = instance_price(instance, capacities(pool)[0], fleet.region)
    unpriced = Money(None, "USD/hour", missing=price.missing)
    cost = node.times(1 / per_node) if per_node and price.value is not None else unpriced
    return Option(instance.name, instance.gpu or "", instance.gpu == pool.types[0].gpu, per_node, share, cost)


def candidates(fleet: Fleet, runner: str) -> tuple[InstanceType, ...]:
    """GPU types with GPUs for the runner, each with at least the memory of its pool's, that the pool's image drives."""
    spec = fleet.runners[runner]
    pool = fleet.pools[spec.pool]
    memory = pool.types[0].gpu_memory_mib
    same_only = isinstance(pool.sharing, Mig)  # profiles are a model's own
    return tuple(
        instance
        for instance in catalog.gpu_instances()
        if instance.gpu_memory_mib >= memory
        and instance.gpu_count * pool.replicas >= spec.gpus
        and (instance.gpu == pool.types[0].gpu or not same_only)
        and driven(fleet, pool, instance)
    )


def driven(fleet: Fleet, pool: GpuPool, instance: InstanceType) -> bool:
    """Whether the driver of the pool's image drives an instance type; an unknown driver might."""
    has = driver(fleet, pool).version
    return has is None or drives(has, catalog.gpu(instance.gpu or ""), [instance.family]).outcome != "impossible"


def _only(fleet: Fleet, name: str, instance: InstanceType) -> Fleet:
    """The fleet with a pool of one type; only for arithmetic, so nothing is validated anew."""
    pool: GpuPool = fleet.pools[name].model_copy(update={"instances": (instance.name,), "max_pods": None})
    return fleet.model_copy(update={"pools": {**fleet.pools, name: pool}})
