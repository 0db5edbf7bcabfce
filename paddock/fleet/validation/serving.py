"""Checks of served models: pools that can hold a replica, and arguments that their vLLM has.

Whether a model is known and fits the memory of a GPU is the plan's to say: its shape is beyond the fleet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from paddock.catalog import ml_images
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
        yield from _engine(model)
        for index, name in enumerate(model.pools):
            yield from _pool(fleet, model, name, ("serving", "models", model.name, "pools", index))


_DECIDED = json.loads(Path(__file__).with_name("vllm.json").read_bytes())
_OWN, _RAYS, _SERVERS = _DECIDED["own"], tuple(_DECIDED["ray"]), tuple(_DECIDED["server"])


def _engine(model: ServedModel) -> Iterator[Problem]:
    """Check arguments for vLLM against the list of those that its version has."""
    key, known, version = ("serving", "models", model.name), ml_images.engine_arguments(), ml_images.engine_version()
    methods = known["quantization"].choices
    if model.quantization and model.quantization not in methods:
        yield Problem(
            (*key, "quantization"),
            f'vLLM {version} has no method "{model.quantization}"',
            f"one of {', '.join(map(str, methods))}",
            did_you_mean(model.quantization, map(str, methods)),
        )
    for name, value in model.engine_args.items():
        at = (*key, "engineArgs", name)
        if name in _OWN:
            yield Problem(at, f"{name} is decided by a key of the fleet", _OWN[name], f"write {_OWN[name]} instead")
        elif name.startswith(_RAYS) or (name.startswith(_SERVERS) and known.get(name, _SERVER).part == "server"):
            whose = "a replica is one pod, in which Ray Serve LLM starts the engine"
            yield Problem(at, f"{name} cannot be chosen: {whose}", "no such argument", "remove it")
        elif (argument := known.get(name)) is None:
            yield Problem(
                at,
                f'vLLM {version} has no argument "{name}"',
                "a name of its engine's arguments, with underscores",
                did_you_mean(name.replace("-", "_"), known),
            )
        elif not argument.takes(value):
            kinds = " or ".join(argument.kinds)
            choices = f", one of {', '.join(map(str, argument.choices))}" if argument.choices else ""
            yield Problem(at, f"{ml_images.kind_of(value)} {value!r} is not what {name} takes", f"{kinds}{choices}")


_SERVER = ml_images.EngineArgument("", "server", ())


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
            f"pool {name} shares its GPUs with other pods, and a served model needs its memory to itself",
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
