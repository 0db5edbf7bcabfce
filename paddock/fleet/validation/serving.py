"""Checks of served models: pools that can hold a replica, and weights that have a place.

Whether a model is known and fits the memory of a GPU is the plan's to say: its shape is beyond the fleet.
"""

from __future__ import annotations

from collections.abc import Iterator

from paddock.fleet.errors import Key, Problem, did_you_mean
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.pool import GpuPool, Mig, Mps, TimeSlicing
from paddock.fleet.model.serving import ServedModel


def problems(fleet: Fleet) -> Iterator[Problem]:
    if fleet.serving is None:
        return
    if not fleet.holds("cluster"):
        yield Problem(
            ("serving",),
            "models are served by the stack that holds the cluster, and this one does not",
            "serving in the stack with cluster: here",
            "move serving there, or remove it",
        )
        return
    for model in fleet.serving.models.values():
        if model.checkpoint and fleet.serving.weights is None:
            yield Problem(
                ("serving", "models", model.name, "checkpoint"),
                "there is no claim that holds the weights",
                "serving.weights: the name of a persistent volume claim in the namespace serving",
                "write serving.weights, or leave checkpoint out for random weights",
            )
        for index, name in enumerate(model.pools):
            yield from _pool(fleet, model, name, ("serving", "models", model.name, "pools", index))


def _pool(fleet: Fleet, model: ServedModel, name: str, key: Key) -> Iterator[Problem]:
    if name not in fleet.pools:
        yield Problem(
            key,
            f'there is no pool "{name}"',
            f"one of {', '.join(fleet.pools)}",
            did_you_mean(name, fleet.pools),
        )
        return
    pool = fleet.pools[name]
    if isinstance(pool.sharing, TimeSlicing | Mps):
        yield Problem(
            key,
            f"pool {name} shares its GPUs with whatever else comes, and a served model needs its memory for itself",
            "a pool with sharing: none, or cut by MIG",
            "make a pool of its own for serving",
        )
        return
    gpus, at = model.tensor_parallel, ("serving", "models", model.name, "tensorParallel")
    if isinstance(pool.sharing, Mig) and gpus > 1:
        yield Problem(
            at,
            f"pool {name} is cut by MIG, and parts of a GPU cannot share a model",
            "tensorParallel: 1",
            "write tensorParallel: 1, or use a pool of whole GPUs",
        )
        return
    most = _most(pool)
    if gpus > most:
        yield Problem(
            at,
            f"{gpus} GPUs are more than a node of pool {name} has ({most})",
            f"at most {most}",
            f"lower tensorParallel, or use a pool of instances with {gpus} GPUs",
        )


def _most(pool: GpuPool) -> int:
    return max(pool.gpu_resources_per_node(instance) for instance in pool.types)
