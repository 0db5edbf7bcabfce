"""Fit of runners on nodes: how many at once, what limits them, and what is left over.

A GPU job that asks for more than any node has waits for ever without a message. The fit is computed before that, from
the numbers that `paddock.fleet.sizing.capacity` derives, for every runner on every instance type of its pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from paddock.catalog import InstanceType
from paddock.fleet import Fleet
from paddock.fleet.model.runner import Runner
from paddock.fleet.sizing.alike import kind_of
from paddock.fleet.sizing.capacity import Allocatable, Resources, allocatable, available, runner_request

Dimension = Literal["gpu", "cpu", "memory", "pods", "disk"]


@dataclass(frozen=True, slots=True)
class Fit:
    """A runner on an instance type: how many at once, what stops the next one, what a node full of them leaves."""

    runner: str
    pool: str
    instance: str
    per_node: int
    limiting: Dimension
    slack: Resources
    stranded_gpus: float
    """GPUs that no further runner of this kind can use; a share of a GPU counts as its fraction."""
    request: Resources
    available: Resources
    allocatable: Allocatable
    source: Literal["measured", "estimated"]
    """Whether the node's memory was measured on a booted one."""
    deficit: Resources
    """What a node lacks for one runner; all zero when one fits."""
    cautious_per_node: int
    """`per_node` by Karpenter's guess of the memory."""


def fit(fleet: Fleet) -> tuple[Fit, ...]:
    """Return the fit of every runner on every instance type of its pool, in the order of the stack file."""
    by_kind: dict[str, list[Fit]] = {}
    fits: list[Fit] = []
    for runner in fleet.runners.values():
        pool = fleet.pools[runner.pool]
        kind = kind_of(fleet, pool, runner)
        if kind in by_kind:
            fits += (replace(alike, runner=runner.name, pool=pool.name) for alike in by_kind[kind])
        else:
            by_kind[kind] = [fit_runner(fleet, runner, instance) for instance in pool.types]
            fits += by_kind[kind]
    return tuple(fits)


def by_runner(fits: Iterable[Fit]) -> dict[str, list[Fit]]:
    """Return the fits of each runner, by its name."""
    fits_by_runner: dict[str, list[Fit]] = {}
    for fit_ in fits:
        fits_by_runner.setdefault(fit_.runner, []).append(fit_)
    return fits_by_runner


def fit_runner(fleet: Fleet, runner: Runner, instance: InstanceType) -> Fit:
    pool = fleet.pools[runner.pool]
    request, has = runner_request(fleet, runner), available(fleet, pool, instance)
    counts = fit_counts(has, request)
    limiting = min(counts, key=lambda dimension: counts[dimension])
    per_node = counts[limiting]
    slack = has - request * per_node
    node = allocatable(fleet, pool, instance)
    return Fit(
        runner=runner.name,
        pool=pool.name,
        instance=instance.name,
        per_node=per_node,
        limiting=limiting,
        slack=slack,
        stranded_gpus=slack.gpus / pool.replicas,
        request=request,
        available=has,
        allocatable=node,
        source=node.capacity.source,
        deficit=Resources(*(max(0, -amount) for amount in (has - request).amounts())),
        cautious_per_node=min(fit_counts(available(fleet, pool, instance, cautious=True), request).values()),
    )


def fit_counts(has: Resources, request: Resources) -> dict[Dimension, int]:
    """Return how many times `request` fits into each resource of a node. GPUs are first: they win ties."""
    pairs: dict[Dimension, tuple[int, int]] = {
        "gpu": (has.gpus, request.gpus),
        "cpu": (has.cpu_m, request.cpu_m),
        "memory": (has.memory_mib, request.memory_mib),
        "pods": (has.pods, request.pods),
        "disk": (has.ephemeral_mib, request.ephemeral_mib),
    }
    return {dimension: max(0, there // needed) for dimension, (there, needed) in pairs.items() if needed}
