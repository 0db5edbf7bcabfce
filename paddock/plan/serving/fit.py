"""Fit of served models: weights and cache in the part of a GPU's memory that vLLM takes, replicas on nodes.

The pods are counted as those of runners. What vLLM takes besides weights and cache it measures itself when it starts:
the tenth on top that `paddock.modes` reckons with stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.serving.engine import memory_part
from paddock.catalog import InstanceType
from paddock.fleet import Fleet, GpuPool, ServedModel
from paddock.fleet.model.pool import Mig
from paddock.fleet.sizing.capacity import Resources, available
from paddock.fleet.sizing.serving import weights_format, worker_request
from paddock.models.presets import preset
from paddock.modes.admission import OVERHEAD
from paddock.plan.fit import Dimension, fit_counts

_MIB = 2**20
_EIGHT = frozenset(
    {"fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "fbgemm_fp8", "int8_per_channel_weight_only", "mxfp8",
     "modelopt", "modelopt_mxfp8"}
)  # fmt: skip
_FOUR = frozenset(
    {"awq", "auto_awq", "awq_marlin", "mxfp4", "gpt_oss_mxfp4", "modelopt_fp4", "nvfp4_per_token", "auto_gptq", "gptq",
     "gptq_marlin"}
)  # fmt: skip
"""Methods of vLLM by the bits of a weight; GPTQ's as nearly all of its checkpoints have them. Of others the name does
not say, and the weights count with the 16 bits that they have at most."""
QUANTISES = "int8_per_channel_weight_only"
"""Method that quantises 16-bit weights of any model while they load."""
LEAST_CONTEXT = 1024


@dataclass(frozen=True, slots=True)
class ServedFit:
    """A served model on an instance type: replicas a node, and MiB of each of its GPUs.

    `allowed_mib` is what vLLM takes of `gpu_memory_mib`; `lacking_mib` is 0 where it fits. `changes` are settings of
    the model, each alone enough for it to. Where `bounded`, weights may be smaller than they are counted.
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
    bounded: bool = False
    changes: tuple[Mapping[str, str | int], ...] = ()


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


def lacks_bf16(pool: GpuPool) -> bool:
    """Return whether the pool's GPU does not compute bf16."""
    return pool.gpu.supports("bf16") is False


def format_of(fleet: Fleet, model: ServedModel) -> str:
    """Return the format of a model's weights in words: vLLM's method, or the format that computes."""
    return model.quantization or weights_format(fleet, model)


def _fit(fleet: Fleet, model: ServedModel, pool: GpuPool, instance: InstanceType) -> ServedFit:
    request, room = worker_request(fleet, model, pool), available(fleet, pool, instance)
    counts = fit_counts(room, request)
    limiting = min(counts, key=lambda dimension: counts[dimension])
    part = pool.gpu.mig_profile(pool.sharing.mig) if isinstance(pool.sharing, Mig) else None
    memory = part.memory_gib * 1024 if part else instance.gpu_memory_mib or 0
    plain = weights_format(fleet, model)
    weights, cache, needed = _memory(model, plain)
    allowed = int(memory * memory_part(model))
    return ServedFit(
        model=model.name,
        pool=pool.name,
        instance=instance.name,
        per_node=counts[limiting],
        limiting=limiting,
        request=request,
        available=room,
        dtype=format_of(fleet, model),
        gpu_memory_mib=memory,
        weights_mib=weights,
        cache_mib=cache,
        needed_mib=needed,
        allowed_mib=allowed,
        lacking_mib=max(0, needed - allowed),
        bounded=model.quantization is not None and model.quantization not in _EIGHT | _FOUR,
        changes=tuple(_changes(model, plain, allowed)) if needed > allowed else (),
    )


def _memory(model: ServedModel, plain: str) -> tuple[int, int, int]:
    """Return MiB of weights, cache, and both with what comes on top, on each GPU of a replica."""
    shape, method = preset(model.model), model.quantization
    packed = "int8" if method in _EIGHT else "int4" if method in _FOUR else plain
    weights = shape.loaded_bytes(packed, model.tensor_parallel)
    element = 4 if plain == "fp32" else 2
    cache = shape.cache_bytes(model.context, element, model.concurrency, model.tensor_parallel)
    return _mib_up(weights), _mib_up(cache), _mib_up(int((weights + cache) * OVERHEAD))


def _changes(model: ServedModel, plain: str, allowed: int) -> Iterator[Mapping[str, str | int]]:
    """Yield settings after which the model fits, in the order of what they cost its users."""
    tries: list[dict[str, str | int]] = [] if model.quantization else [{"quantization": QUANTISES}]
    halves = [model.concurrency >> shift for shift in range(1, model.concurrency.bit_length())]
    tries += [{"concurrency": half} for half in halves]
    context = model.context // 2
    while context >= LEAST_CONTEXT:
        tries += [{"context": context}, {"concurrency": 1, "context": context}]
        context //= 2
    for settings in tries:
        if _memory(model.model_copy(update=settings), plain)[2] <= allowed:
            yield settings


def _mib_up(count: int) -> int:
    return -(-count // _MIB)
