"""Runners that are alike: what follows from their sizes is computed once for all of them."""

from __future__ import annotations

from paddock.fleet.model.fleet import Fleet, once_per_fleet
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.model.runner import Runner


@once_per_fleet
def kind_of(fleet: Fleet, pool: GpuPool, runner: Runner) -> str:
    """Return all that the sizes of a runner follow from: alike runners on alike pools have it in common."""
    sizes = runner.model_dump_json(include={"gpus", "cpu", "memory", "container", "volumes"})
    return f"{sizes} {_pool_kind(fleet, pool)}"


@once_per_fleet
def _pool_kind(fleet: Fleet, pool: GpuPool) -> str:
    least = min(runner.gpus for runner in fleet.runners_on(pool))
    return f"{pool.model_dump_json()} {least}"
