"""Jobs of a benchmark: what the device computes with, and what its memory holds. Decided before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from paddock.bench.engines.door import BenchJob, model_of
from paddock.bench.engines.formats import Capability, cache_bytes, default_formats, dtype_refusal, smaller_formats
from paddock.bench.errors import BenchError
from paddock.bench.report.model import Problem
from paddock.errors import PaddockError
from paddock.models import random_gguf
from paddock.models.shapes import Shape, cache_element
from paddock.modes.admission import Demand, DoesNotFit, Room, admit
from paddock.modes.config import ResourceConfig
from paddock.modes.limiter import Limiter
from paddock.modes.policy import Policy

_UNLIMITED = ResourceConfig(max_vram_usage_percent=1.0)


@dataclass(frozen=True, slots=True)
class Options:
    """Measurements to take. `modes` are resource modes by name; empty for none. No `dtypes` are those of the device."""

    shape: Shape
    source: str
    engine: str
    dtypes: tuple[str, ...]
    batches: tuple[int, ...]
    prompts: tuple[int, ...]
    new: int
    runs: int
    warm_up: int
    region: str
    instance: str | None
    modes: Mapping[str, Policy] = field(default_factory=dict)
    seed: int = 0
    sessions: int = 1
    """Fresh processes, one after the other, each with its own runs."""
    gpus: tuple[str, ...] = ()
    """Indexes or UUIDs of the only GPUs to choose from."""
    application: str = ""
    """The application and user as which requests are made: a policy's limits of theirs hold."""
    user: str = ""
    metrics_port: int | None = None
    in_turn: int | None = None
    """Port of this machine at which the benchmark of another build takes turns with this one, run by run."""
    threads: int | None = None
    cache: str = ""
    """Type of the numbers in llama.cpp's cache; empty for its own."""


@dataclass(frozen=True, slots=True)
class Target:
    """Device that a model is loaded on: torch's name for its kind, its compute capability and its memory."""

    kind: str
    uuids: tuple[str, ...]
    room: Room
    capability: Capability = None
    """None where there is none, or it is not known."""


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """Jobs that the memory holds, and the others as problems."""

    jobs: tuple[BenchJob, ...]
    problems: tuple[Problem, ...]
    refused_for_memory: int = 0
    """Jobs that the memory was too small for."""


def plan(options: Options, target: Target) -> BenchPlan:
    """Return the jobs of a benchmark. Raises BenchError where none can be done."""
    jobs, problems, small = list[BenchJob](), list[Problem](), 0
    first: PaddockError | None = None
    modes: Mapping[str, Policy | None] = options.modes or {"": None}
    for name, policy in modes.items():
        for dtype in options.dtypes or _default_formats(options, target):
            try:
                job = _job(options, target, name, policy, dtype)
            except (BenchError, DoesNotFit) as error:
                small += isinstance(error, DoesNotFit)
                first = first or error
                problems.append(Problem(dtype=dtype, mode=name or None, message=str(error), code=error.exit_code))
            else:
                jobs.append(job)
    if first is not None and not jobs:
        raise first
    return BenchPlan(tuple(jobs), tuple(problems), small)


def _default_formats(options: Options, target: Target) -> Sequence[str]:
    """Return the formats that are measured where none is asked for, without those that this model cannot have."""
    model, device = model_of(options.shape, options.source), (target.kind, target.capability)
    formats = default_formats(options.engine, target.capability)
    return [dtype for dtype in formats if not dtype_refusal(options.engine, dtype, model, *device)]


def _job(options: Options, target: Target, mode: str, policy: Policy | None, dtype: str) -> BenchJob:
    """Return a job. Raises BenchInputError for a format that the device lacks, DoesNotFit for one that is too large."""
    model = model_of(options.shape, options.source)
    if error := dtype_refusal(options.engine, dtype, model, target.kind, target.capability):
        raise error
    limits, batches = _UNLIMITED, options.batches
    if policy:
        limits, most = policy.current()(), Limiter(policy).batch_limit(options.application, options.user)
        batches = tuple(dict.fromkeys(min(batch, most) for batch in batches))
    admit(_demand(options, dtype, max(batches), target), target.room, limits)
    return BenchJob(
        **same_fields(
            BenchJob, options, dtype=dtype, device=target.kind, batches=batches, uuids=target.uuids, mode=mode,
            memory_fraction=limits.max_vram_usage_percent, policy=policy.model_dump(mode="json") if policy else None,
        )
    )  # fmt: skip


def same_fields(kind: Any, source: object, /, **own: Any) -> dict[str, Any]:
    """Return the values of a dataclass's fields that `source` has by the same names, and its own."""
    return {item.name: getattr(source, item.name) for item in fields(kind) if hasattr(source, item.name)} | own


def _demand(options: Options, dtype: str, batch: int, target: Target) -> Demand:
    """Return the memory of the device while the model loads and runs."""
    model, llama = model_of(options.shape, options.source), options.engine == "llama.cpp"
    length = max(options.prompts) + options.new
    element = cache_bytes(options.cache) if llama else cache_element(dtype)
    cache = math.ceil(model.cache_bytes(length, 1) * element / length)
    if llama and options.source:
        return Demand(model.bytes, cache, batch, length, dtype)

    def weights(dtype: str) -> int:
        if llama:
            return random_gguf.nbytes(options.shape, dtype)
        packed = model.loading_bytes("int8" if dtype == "fp8" else dtype)
        # A checkpoint is read whole, in 16 bits, before its weights are packed.
        return max(packed, model.loaded_bytes("bf16")) if options.source else packed

    others = (
        other
        for other in smaller_formats(options.engine)
        if not dtype_refusal(options.engine, other, model, target.kind, target.capability)
    )
    smaller = {other: weights(other) for other in others if weights(other) < weights(dtype)}
    return Demand(weights(dtype), cache, batch, length, dtype, smaller)
