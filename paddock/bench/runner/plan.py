"""Jobs of a benchmark: what the device computes with, and what its memory holds. Decided before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paddock.bench.errors import BenchError
from paddock.bench.report.model import Problem
from paddock.bench.runner.jobs import Job
from paddock.models.model import PLAIN
from paddock.models.shapes import Shape, cache_element
from paddock.modes.admission import Demand, DoesNotFit, Room, admit
from paddock.modes.config import ResourceConfig
from paddock.modes.limiter import Limiter
from paddock.modes.policy import Policy
from paddock.serve.own.packing.formats import FORMATS, default_formats, plain_format, refusal
from paddock.serve.own.packing.quality import LENGTH
from paddock.serve.own.refusals import packing_refusal
from paddock.serve.own.sizes import loaded_model

_UNLIMITED = ResourceConfig(max_vram_usage_percent=1.0)
_LLAMA_CACHE = 2
"""Bytes of a number in llama.cpp's cache, which is fp16."""


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
    tp: int
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


@dataclass(frozen=True, slots=True)
class Target:
    """Devices that a model is loaded on: torch's name for their kind, their compute capability and their memory."""

    kind: str
    uuids: tuple[str, ...]
    degree: int
    room: Room
    capability: tuple[int, int] | None = None
    """None where there is none, or it is not known."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs that the memory holds, and the others as problems."""

    jobs: tuple[Job, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    refused_for_memory: int = 0
    """Jobs that the memory was too small for."""


def plan(options: Options, target: Target) -> Plan:
    """Return the jobs of a benchmark. Raises BenchError where none can be done."""
    jobs, problems, notes, small = list[Job](), list[Problem](), list[str](), 0
    first: BenchError | None = None
    modes: Mapping[str, Policy | None] = options.modes or {"": None}
    for name, policy in modes.items():
        for dtype in options.dtypes or default_formats(target.kind, target.capability):
            try:
                job = _job(options, target, name, policy, dtype)
            except BenchError as error:
                small += isinstance(error, DoesNotFit)
                first = first or error
                problems.append(Problem(dtype=dtype, mode=name or None, message=str(error), code=error.exit_code))
            else:
                jobs.append(job)
    if first is not None and not jobs:
        raise first
    return Plan(tuple(_compared(jobs, options, target, notes)), tuple(problems), tuple(notes), small)


def _job(options: Options, target: Target, mode: str, policy: Policy | None, dtype: str) -> Job:
    """Return a job. Raises BenchInputError for a format that the device lacks, DoesNotFit for one that is too large."""
    if options.engine == "torch":
        unfit = refusal(dtype, target.kind, target.capability)
        if error := unfit or packing_refusal(loaded_model(options.shape, options.source), dtype):
            raise error
    limits, batches = _UNLIMITED, options.batches
    if policy:
        limits, most = policy.current()(), Limiter(policy).batch_limit(options.application, options.user)
        batches = tuple(dict.fromkeys(min(batch, most) for batch in batches))
    admit(_demand(options, dtype, max(batches), target), target.room, limits)
    return Job(
        options.shape,
        dtype,
        target.kind,
        batches,
        options.prompts,
        options.new,
        options.runs,
        options.warm_up,
        options.engine,
        options.source,
        options.seed,
        limits.max_vram_usage_percent,
        target.uuids,
        mode,
        policy.model_dump(mode="json") if policy else None,
        application=options.application,
        user=options.user,
        in_turn=options.in_turn,
    )


def _compared(jobs: Sequence[Job], options: Options, target: Target, notes: list[str]) -> Iterator[Job]:
    """Yield the jobs; of each quantised format the first is compared with the weights as they were."""
    plain, seen = plain_format(target.kind, target.capability), set[str]()
    for job in jobs:
        if job.engine != "torch" or job.dtype in seen:
            yield replace(job, compare=False)
            continue
        seen.add(job.dtype)
        try:
            alone = replace(options, prompts=(LENGTH,), new=1)
            admit(_demand(alone, plain, 1, target), target.room, _part(job.memory_fraction))
        except DoesNotFit:
            if job.dtype not in PLAIN:
                notes.append(f"quality of {job.dtype} is unknown: the model in {plain} does not fit beside it")
            yield replace(job, compare=job.dtype in PLAIN)
        else:
            yield replace(job, reference=plain)


def _part(part: float) -> ResourceConfig:
    return _UNLIMITED.model_copy(update={"max_vram_usage_percent": part})


def _demand(options: Options, dtype: str, batch: int, target: Target) -> Demand:
    """Return the memory of one device while the model loads and runs."""
    model, degree, processor = loaded_model(options.shape, options.source), target.degree, target.kind == "cpu"
    length = max(options.prompts) + options.new

    def cache(element: int) -> int:
        return -(-model.cache_bytes(length, element, 1, degree) // length)

    if options.engine == "llama.cpp":
        return Demand(model.bytes, cache(_LLAMA_CACHE), batch, length, dtype)

    def weights(dtype: str) -> int:
        if processor and options.source.endswith(".gguf"):
            # transformers unpacks such a file as a whole, in the machine's memory, before anything is packed again.
            return max(model.loading_bytes(dtype, degree), model.loaded_bytes("fp32" if dtype == "fp32" else "bf16"))
        return model.loading_bytes(dtype, degree)

    others = (other for other in FORMATS if not refusal(other, target.kind, target.capability))
    return Demand(
        weights(dtype),
        cache(cache_element(dtype, processor=processor)),
        batch,
        length,
        dtype,
        {other: weights(other) for other in others if weights(other) < weights(dtype)},
    )
