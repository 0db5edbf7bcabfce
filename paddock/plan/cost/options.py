"""Instance types that could replace those of a pool: what a runner would get and cost on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.catalog.cuda_match import drives
from paddock.fleet import Fleet, GpuPool, Runner
from paddock.fleet.model.pool import Mig
from paddock.fleet.nodes import capacities
from paddock.fleet.sizing.alike import kind_of
from paddock.fleet.sizing.capacity import Share, available, default_share, runner_request
from paddock.fleet.software import driver
from paddock.plan.cost.money import Money, total
from paddock.plan.cost.nodes import instance_price, root_volume
from paddock.plan.fit import fit_counts


@dataclass(frozen=True, slots=True)
class Option:
    """A runner on nodes of one type: how many, what each gets, what each costs (USD/hour, bought as the pool is)."""

    instance: str
    gpu: str
    same_gpu: bool
    per_node: int
    cpu_m: int
    memory_mib: int
    per_runner_hour: Money


def option(fleet: Fleet, runner: Runner, instance: InstanceType) -> Option:
    """Return the runner as if its pool had this type alone. CPU and memory that are not written follow the type."""
    kind = (kind_of(fleet, fleet.pools[runner.pool], runner), instance.name)
    if kind not in fleet.results:
        fleet.results[kind] = _option(fleet, fleet.pools[runner.pool], runner, instance)
    return cast("Option", fleet.results[kind])


def _option(fleet: Fleet, pool: GpuPool, runner: Runner, instance: InstanceType) -> Option:
    only = pool.model_copy(update={"instances": (instance.name,), "max_pods": None})
    if only.gpu_resources_per_node(instance) < runner.gpus:
        share, per_node = Share(runner.cpu or 0, runner.memory or 0), 0
    else:
        share, request = default_share(fleet, runner, only), runner_request(fleet, runner, only)
        has = available(fleet, only, instance)
        per_node = min(fit_counts(has, request).values())
    node = total((instance_price(instance, capacities(pool)[0], fleet.region), root_volume(fleet, pool)), "USD/hour")
    price = instance_price(instance, capacities(pool)[0], fleet.region)
    unpriced = Money(None, "USD/hour", missing=price.missing)
    cost = node.times(1 / per_node) if per_node and price.value is not None else unpriced
    same_gpu = instance.gpu == pool.types[0].gpu
    return Option(instance.name, instance.gpu or "", same_gpu, per_node, share.cpu_m, share.memory_mib, cost)


def candidates(fleet: Fleet, runner: Runner) -> tuple[InstanceType, ...]:
    """GPU types with GPUs for the runner, each with at least the memory of its pool's, that the pool's image drives."""
    pool = fleet.pools[runner.pool]
    memory = pool.types[0].gpu_memory_mib
    same_only = isinstance(pool.sharing, Mig)  # profiles are a model's own
    return tuple(
        instance
        for instance in catalog.gpu_instances()
        if instance.gpu_memory_mib >= memory
        and instance.gpu_count * pool.replicas >= runner.gpus
        and (instance.gpu == pool.types[0].gpu or not same_only)
        and driven(fleet, pool, instance)
    )


def driven(fleet: Fleet, pool: GpuPool, instance: InstanceType) -> bool:
    """Return whether the driver of the pool's image drives an instance type; an unknown driver might."""
    has = driver(fleet, pool).version
    return has is None or drives(has, catalog.gpu(instance.gpu or ""), [instance.family]).outcome != "impossible"
