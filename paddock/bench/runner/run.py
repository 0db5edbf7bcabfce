"""A whole benchmark on this machine: devices, jobs, workers and the document of results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from paddock.bench.engine.shapes import Shape, cache_element, tensor_parallel
from paddock.bench.errors import BenchError
from paddock.bench.measurement import environment as surroundings
from paddock.bench.measurement.watch import watching
from paddock.bench.modes.admission import Demand, Room, admit
from paddock.bench.modes.cap import capped
from paddock.bench.modes.config import ResourceConfig
from paddock.bench.modes.policy import GpuCap, Policy
from paddock.bench.report.model import BenchDocument, Problem, Result
from paddock.bench.runner import results
from paddock.bench.runner.jobs import Job
from paddock.bench.runner.process import WorkerFailed, events
from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.host.visibility import visibility_variables
from paddock.gpu.inventory import inventory, sampler
from paddock.gpu.leases.manager import Leases
from paddock.gpu.model import Gpu, Inventory
from paddock.smoke.runner.leasing import leased

_DEVICE = {"nvidia": "cuda", "amd": "cuda", "apple": "mps"}
_SILENT_FOR = 300.0
"""Seconds without an event after which a worker is taken to hang."""
_SESSION_S = 3600.0
"""Seconds that one session may take: the lease of the GPUs, which nothing renews, lasts as many."""
_UNLIMITED = ResourceConfig(max_vram_usage_percent=1.0)

Notify = Callable[[str], None]
_Cell = tuple[str, str, int, int]
"""Mode, dtype, batch and prompt length."""


@dataclass(frozen=True, slots=True)
class Options:
    """Measurements to take. `modes` are resource modes by name; empty for none."""

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


def run(
    options: Options,
    notify: Notify = lambda _: None,
    *,
    environ: Mapping[str, str] = os.environ,
    machine: Inventory | None = None,
    silent_for: float = _SILENT_FOR,
) -> BenchDocument:
    """Measure this machine; an interrupt returns what is known until then, as incomplete.

    Raises BenchError before anything is loaded, and GpuError.
    """
    machine = machine or inventory(processes=True)
    gpus = _usable(machine)
    notes = []
    tp, devices = options.tp, len(gpus) or options.tp
    if tp > 1:
        degree = tensor_parallel(options.shape, min(tp, devices))
        if degree < tp:
            left = ", ".join(f"GPU {gpu.index}" for gpu in gpus[degree:]) or "none"
            notes.append(
                f"--tp {tp} does not divide {options.shape.heads} heads and {options.shape.kv_heads} key-value heads"
                f" on {devices} device(s): {degree} is used; unused: {left}"
            )
        tp = degree
    chosen = gpus[:tp] if gpus else ()
    device = _DEVICE[chosen[0].vendor] if chosen else "cpu"
    uuids = tuple(gpu.uuid for gpu in chosen if gpu.uuid)
    jobs, problems = _jobs(options, device, uuids, tp, _memory(chosen))
    run = _Run(options, machine, chosen, device, tp, notify)
    run.problems += problems
    if not gpus:
        reason = (machine.reason or "no GPU answers").rstrip(".")
        notes.append(f"measured on the processor: {reason[:1].lower()}{reason[1:]}")
    complete = True
    with ExitStack() as stack:
        if uuids:
            refused = stack.enter_context(
                leased(uuids, _SESSION_S * options.sessions, Leases(environ=environ), command="paddock bench")
            )
            for uuid, why in refused.items():
                raise BenchError(f"GPU {uuid} is in use: {why}\n    fix: end that lease, or wait for it")
        clocks = stack.enter_context(watching(sampler() if uuids else None, uuids))
        changes = visibility_variables(chosen[0].vendor if chosen else None, uuids)
        merged = {**environ, **{name: value for name, value in changes.items() if value is not None}}
        try:
            # A process can lower its priority and never raise it again: a mode has one of its own.
            for session in range(options.sessions):
                if options.sessions > 1:
                    notify(f"session {session + 1} of {options.sessions}")
                again = [replace(job, compare=session == 0) for job in jobs if not run.failed(job)]
                for mode, group in groupby(again, lambda job: job.mode):
                    with ExitStack() as caps:
                        variables = merged
                        if mode:
                            policy = options.modes[mode]
                            notes += _cap(caps, mode, policy.gpu, chosen, environ)
                            variables = {**_waiting(policy), **merged}
                        run.work(list(group), variables, silent_for)
        except KeyboardInterrupt:
            complete = False
        if uuids:
            run.doubts += results.doubts_of_clocks(clocks)
            run.doubts += _foreign(uuids)
    return run.document(complete, list(dict.fromkeys(notes)), tuple(asdict(sample) for sample in clocks))


class _Run:
    """Results so far."""

    def __init__(
        self, options: Options, machine: Inventory, gpus: tuple[Gpu, ...], device: str, tp: int, notify: Notify
    ) -> None:
        self._options, self._notify = options, notify
        self._device, self._tp = device, tp
        self._gpus = gpus
        self._environment = surroundings.environment(machine)
        if options.instance:
            self._environment["instance"] = options.instance
        self._results: dict[_Cell, Result] = {}
        self._cells: dict[_Cell, dict[str, Any]] = {}
        self.problems: list[Problem] = []
        self.doubts: list[str] = []

    def work(self, jobs: list[Job], environ: Mapping[str, str], silent_for: float) -> None:
        """Measure the jobs; when a worker dies, the job that it had is a problem and the others go on in a new one."""
        rest = list(jobs)
        while rest:
            current, loaded, quality, finished = 0, {}, None, False
            try:
                for event in events(rest, self._tp, environ, silent_for):
                    match event.pop("event"):
                        case "job":
                            current, quality = event["number"], None
                            self._notify(f"{_title(rest[current])}: loading")
                        case "loaded":
                            loaded = event
                        case "quality":
                            quality = event
                        case "cell":
                            self._add(rest[current], loaded, quality, event)
                        case "failed":
                            self._fail(rest[current], event["message"], event["code"])
                finished = True
            except WorkerFailed as error:
                self._fail(rest[current], str(error), 1)
            if finished:
                return
            rest = rest[current + 1 :]

    def document(self, complete: bool, notes: list[str], clocks: tuple[dict[str, Any], ...]) -> BenchDocument:
        model = catalog_entry(self._gpus[0]) if self._gpus else None
        shape = self._options.shape
        return BenchDocument(
            taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
            complete=complete,
            command={
                name: list(value) if isinstance(value, tuple) else value
                for name, value in asdict(self._options).items()
                if name not in ("shape", "modes")
            },
            model={
                **asdict(shape),
                "parameters": shape.parameters,
                "weights": self._options.source or f"random, seed {self._options.seed}",
            },
            device={
                "kind": self._device,
                "name": self._gpus[0].name if self._gpus else self._environment["processor"],
                "count": self._tp if self._gpus else 1,
                "ranks": self._tp,
                "catalogue": model.key if model else None,
                "uuids": [gpu.uuid for gpu in self._gpus],
            },
            engine=self._options.engine,
            environment=self._environment,
            results=tuple(
                result.model_copy(update={"doubts": (*result.doubts, *self.doubts)})
                for result in self._results.values()
            ),
            problems=tuple(self.problems),
            clocks=clocks,
            notes=tuple(notes),
        )

    def _add(self, job: Job, loaded: Mapping[str, Any], quality: Any, cell: Mapping[str, Any]) -> None:
        model = catalog_entry(self._gpus[0]) if self._gpus else None
        context = results.Context(
            self._environment, model, self._tp, len(self._gpus), self._options.region, self._options.instance
        )
        place = (job.mode, job.dtype, int(cell["batch"]), int(cell["prompt"]))
        samples = {**cell, "sessions": [len(cell["runs"])], "sessions_at": [cell["started_at"]]}
        if earlier := self._cells.get(place):
            samples = results.merged(earlier, samples)
        result = results.result(job, loaded, quality, samples, context)
        if place in self._results:
            result = result.model_copy(update={"quality": self._results[place].quality})
        self._cells[place], self._results[place] = samples, result
        self._notify(
            f"{_title(job)}: batch {cell['batch']}, prompt {cell['prompt']}: {result.tokens_per_s:.1f} tokens/s"
        )

    def failed(self, job: Job) -> bool:
        """Return whether the job has failed in an earlier session."""
        return any((problem.dtype, problem.mode) == (job.dtype, job.mode or None) for problem in self.problems)

    def _fail(self, job: Job, message: str, code: int) -> None:
        self.problems.append(Problem(dtype=job.dtype, mode=job.mode or None, message=message, code=code))
        self._notify(f"{_title(job)}: {message}")


def _jobs(
    options: Options, device: str, uuids: tuple[str, ...], tp: int, memory: Room
) -> tuple[list[Job], list[Problem]]:
    """Return the jobs that the memory holds, and the others as problems. Raises BenchError where none fits."""
    jobs, problems, last = [], [], None
    modes: Mapping[str, Policy | None] = options.modes or {"": None}
    for name, policy in modes.items():
        limits, batches = _UNLIMITED, options.batches
        if policy:
            limits = policy.current()()
            batches = tuple(dict.fromkeys(min(batch, limits.max_batch_size) for batch in batches))
        for dtype in options.dtypes:
            try:
                admit(_demand(options, dtype, max(batches), device, tp), memory, limits)
            except BenchError as error:
                last = error
                problems.append(Problem(dtype=dtype, mode=name or None, message=str(error), code=2))
                continue
            jobs.append(
                Job(
                    options.shape,
                    dtype,
                    device,
                    batches,
                    options.prompts,
                    options.new,
                    options.runs,
                    options.warm_up,
                    options.engine,
                    options.source,
                    options.seed,
                    limits.max_vram_usage_percent,
                    uuids,
                    name,
                    policy.model_dump(mode="json") if policy else None,
                )
            )
    if last is not None and not jobs:
        raise last
    return jobs, problems


def _demand(options: Options, dtype: str, batch: int, device: str, tp: int) -> Demand:
    """Return the memory of one device. A .gguf file is read whole and unpacked, in the machine's memory."""
    shape, length = options.shape, max(options.prompts) + options.new
    weights = shape.loading_bytes(dtype, tp)
    if options.source.endswith(".gguf") and device == "cpu":
        weights = max(weights, shape.loaded_bytes("fp32" if dtype == "fp32" else "bf16"))
    element = cache_element(dtype, processor=device == "cpu")
    return Demand(weights, shape.cache_bytes(element, tp), batch, length, dtype)


def _cap(stack: ExitStack, mode: str, cap: GpuCap, gpus: tuple[Gpu, ...], environ: Mapping[str, str]) -> list[str]:
    """Cap the GPUs until the stack ends, and return what became of it."""
    if cap == GpuCap():
        return []
    if not gpus:
        return [f"{mode}: no GPU to cap"]
    limits = [f"{cap.power_watts} W"] if cap.power_watts else []
    limits += [f"{cap.clock_mhz} MHz"] if cap.clock_mhz else []
    notes = []
    for gpu in gpus:
        applied = stack.enter_context(capped(gpu.uuid or "", cap, environ))
        outcome = f"capped at {' and '.join(limits)}" if applied.applied else f"not capped: {applied.reason}"
        notes.append(f"{mode}: GPU {gpu.index} is {outcome}")
    return notes


def _waiting(policy: Policy) -> dict[str, str]:
    """Return how OpenMP's threads wait: asleep where others come first.

    A thread that spins while a process of higher priority keeps its sibling from the processor makes a step take many
    times as long.
    """
    return {"OMP_WAIT_POLICY": "passive"} if policy.current()().process_priority > 0 else {}


def _usable(machine: Inventory) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in machine.gpus if gpu.state == "ok" and gpu.uuid)


def _memory(gpus: tuple[Gpu, ...]) -> Room:
    """Return the memory of the device with the least, or of the machine. Unknown memory refuses nothing."""
    memories = [gpu.memory for gpu in gpus if gpu.memory]
    if memories:
        least = min(memories, key=lambda memory: memory.free)
        return Room(least.total * 2**20, least.free * 2**20)
    total = surroundings.memory_bytes()
    if total is None:
        return Room(2**62, 2**62)
    return Room(total, surroundings.available_bytes() or total)


def _foreign(uuids: tuple[str, ...]) -> list[str]:
    """Return a doubt for each GPU on which another program has appeared; ours have ended by now."""
    time.sleep(0.2)
    return [
        f"GPU {gpu.index} has another program: process {gpu.processes[0].pid}"
        for gpu in inventory(processes=True).gpus
        if gpu.uuid in uuids and gpu.processes
    ]


def _title(job: Job) -> str:
    return f"{job.shape.name} {job.dtype} {job.mode}".rstrip()
