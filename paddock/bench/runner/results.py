"""Results from a worker's samples: rates, roofline, energy, money and reasons for doubt."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from paddock.bench.engines.door import BenchJob, model_of
from paddock.bench.measurement import cost
from paddock.bench.measurement.roofline import ModelWork, Work, least_seconds, ridge_batch
from paddock.bench.measurement.statistics import spread, summarise
from paddock.bench.measurement.watch import SLOWED, Sample
from paddock.bench.report.model import Energy, Knee, Metric, Result, Roofline
from paddock.bench.runner.loop import STEADY, Samples
from paddock.catalog.gpus import Gpu

_KNEE = 1.05
"""Throughput of the larger batch over that of the smaller below which more rows hardly pay."""
_VARIES = 0.05
"""Coefficient of variation of the runs above which they do not agree."""
_OVERHEAD = 0.01
"""Part of the decoding time that the harness may take."""
_BUSY = 0.1
"""Part of the CPUs' time that others may take."""
_CLOCKS = 0.03
"""Part by which our clock and the engine's own may differ."""
_LAUNCH_BOUND = 0.9
"""Part of a step that launching it takes, from which on the GPU waits for the CPU."""


@dataclass(frozen=True, slots=True)
class Context:
    """Facts that all results of a benchmark share. `gpu` is the catalogue's entry, None for the CPU."""

    environment: Mapping[str, Any]
    gpu: Gpu | None
    gpus: int
    region: str
    idle_watts: float | None = None


def result(job: BenchJob, loaded: Mapping[str, Any], cell: Mapping[str, Any], context: Context) -> Result:
    """Return the result of one cell; `cell["sessions"]` says how many of its runs are of one process each."""
    batch, prompt = int(cell["batch"]), int(cell["prompt"])
    samples = Samples(**{item.name: cell[item.name] for item in fields(Samples)})
    decoded = [batch * len(steps) / sum(steps) for steps in samples.runs]
    seconds = [sum(parts) for parts in zip(samples.prefill, samples.wall, samples.paused, strict=True)]
    requests = [batch * (len(steps) + 1) / whole for whole, steps in zip(seconds, samples.runs, strict=True)]
    first_tokens, gaps = _ms(samples.prefill), _ms(samples.steps)
    # Pairs of runs share what the machine did, and their medians vary least; elsewhere the quick step does.
    judged = "decode_tokens_per_s" if cell["in_turn"] else "step_p10_ms"
    runs: dict[str, tuple[str, Literal["higher", "lower"], list[float]]] = {
        "decode_tokens_per_s": ("tokens/s", "higher", decoded),
        "request_tokens_per_s": ("tokens/s", "higher", requests),
        "ttft_ms": ("ms", "lower", first_tokens),
        "step_p10_ms": ("ms", "lower", _ms(sorted(steps)[len(steps) // 10] for steps in samples.runs)),
    }
    tokens = cell["requests"] * batch * (len(samples.runs[0]) + 1)
    return Result(
        key=_key(job, batch, prompt, context),
        metrics={name: _metric(*values, cell["sessions"], name == judged) for name, values in runs.items()},
        sessions_at=tuple(cell["sessions_at"]), in_turn=cell["in_turn"], ttft=summarise(first_tokens, "ms"),
        tpot=summarise(_ms(map(statistics.fmean, samples.runs)), "ms"), gaps=summarise(gaps, "ms"),
        request_ms=summarise(_ms(seconds), "ms"), gap_samples=tuple(spread(gaps)),
        prefill_tokens_per_s=batch * prompt / statistics.median(samples.prefill),
        tokens_per_s=statistics.median(decoded), memory_bytes=int(cell["memory"]), load_s=loaded["load_s"],
        quantise_s=loaded["quantise_s"], compile_s=cell["compile_s"], kernel=loaded["kernel"], step=cell["step"],
        roofline=_roofline(job, loaded, cell, samples, context), energy=_energy(cell, tokens, context),
        cost=_costs(statistics.median(requests), job, loaded, context), harness_overhead=samples.overhead,
        launching=samples.launching, clocks=samples.clocks, throttled_s=sum(samples.paused),
        device_share=1 - sum(samples.paused) / sum(seconds), doubts=tuple(_doubts(job, samples, cell, context)),
        notes=(*loaded["notes"], *_notes(cell)),
    )  # fmt: skip


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cell with the samples of two, in their order."""
    lists = ("prefill", "runs", "wall", "paused", "engine", "calls", "reported", "bandwidth", "sessions", "sessions_at")

    def total(name: str) -> float | None:
        values = first[name], second[name]
        return None if None in values else sum(values)

    return {
        **second,
        **{name: [*first[name], *second[name]] for name in lists},
        **{name: total(name) for name in ("seconds", "requests", "joules", "sampled_joules", "inside", "together")},
        **{name: max(first[name], second[name]) for name in ("memory", "compile_s")},
        "others": max((cell["others"] for cell in (first, second) if cell["others"] is not None), default=None),
        "in_turn": first["in_turn"] and second["in_turn"],
    }


def knees(results: Sequence[Result]) -> tuple[Knee, ...]:
    """Return the knee of each dtype, mode and prompt length that was measured in several batches and has one."""
    series: dict[tuple[str, str | None, int], list[Result]] = {}
    for result in results:
        mode = result.key["mode"]
        place = str(result.key["dtype"]), str(mode) if mode else None, int(result.key["prompt"] or 0)
        series.setdefault(place, []).append(result)
    knees = []
    for (dtype, mode, prompt), cells in series.items():
        for smaller, larger in itertools.pairwise(sorted(cells, key=lambda result: result.batch)):
            if larger.tokens_per_s < smaller.tokens_per_s * _KNEE:
                speed = smaller.tokens_per_s
                knees.append(Knee(dtype=dtype, mode=mode, prompt=prompt, batch=smaller.batch, tokens_per_s=speed))
                break
    return tuple(knees)


def _metric(
    unit: str, better: Literal["higher", "lower"], runs: Sequence[float], sessions: Sequence[int], gates: bool
) -> Metric:
    ends = list(itertools.accumulate(sessions))
    medians = tuple(statistics.median(runs[end - count : end]) for end, count in zip(ends, sessions, strict=True))
    return Metric(unit=unit, better=better, runs=tuple(runs), sessions=medians, gates=gates)


def _ms(seconds: Iterable[float]) -> list[float]:
    return [1000 * value for value in seconds]


def doubts_of_clocks(samples: Sequence[Sample]) -> list[str]:
    """Return a doubt for each reason that held the clocks low, with the part of the samples that it held."""
    reasons = Counter(reason for sample in samples for reason in sample.throttle if reason in SLOWED)
    return [f"clocks were held low in {count / len(samples):.0%} of the run: {name}" for name, count in reasons.items()]


def _roofline(
    job: BenchJob, loaded: Mapping[str, Any], cell: Mapping[str, Any], samples: Samples, context: Context
) -> Roofline:
    model = model_of(job.shape, job.source)
    batch, prompt = int(cell["batch"]), int(cell["prompt"])
    tokens = prompt + job.new // 2
    work = ModelWork(
        int(loaded["weight_bytes"]), model.body.active + model.output_parameters, model.output_parameters,
        round(model.cache_bytes(tokens, 1) * float(loaded["cache_element"]) / tokens),
        sum(bool(layer.cached) for layer in model.layers), model.heads, model.head_dim,
    )  # fmt: skip
    step = work.decode(batch, prompt + job.new / 2)
    prefill = work.prefill(batch, prompt)
    seconds, first = statistics.median(samples.steps), statistics.median(samples.prefill)
    bandwidth = sorted(cell["bandwidth"])
    measured = statistics.median(bandwidth) if bandwidth else None
    tflops = loaded["tflops"]
    gbs = context.gpu.bandwidth_gbs if context.gpu else None
    peak = context.gpu.tflops.get(loaded["computed"]) if context.gpu else None
    return Roofline(
        weight_bytes=int(loaded["weight_bytes"]), bytes_per_step=step.bytes, flop_per_step=step.flop,
        achieved_gbs=step.bytes / seconds / 1e9, measured_gbs=measured, measured_low_gbs=min(bandwidth, default=None),
        measured_high_gbs=max(bandwidth, default=None), datasheet_gbs=gbs,
        of_measured=_part(step, measured, tflops, seconds) if measured else None,
        of_datasheet=_part(step, gbs, peak, seconds) if gbs else None, prefill_tflops=prefill.flop / first / 1e12,
        measured_tflops=tflops, prefill_of_measured=_part(prefill, measured, tflops, first) if tflops else None,
        prefill_of_datasheet=_part(prefill, gbs, peak, first) if peak else None,
        bound=_bound(step, measured or gbs, tflops),
        ridge_batch=ridge_batch(tflops, measured, 8 * work.weight_bytes / work.parameters),
    )  # fmt: skip


def _bound(work: Work, gbs: float | None, tflops: float | None) -> Literal["memory", "arithmetic"] | None:
    """Return what bounds a step; None where the speed of its products, or of reads, is not known."""
    if not gbs or not tflops:
        return None
    return "arithmetic" if work.flop / (tflops * 1e12) > work.bytes / (gbs * 1e9) else "memory"


def _part(work: Work, gbs: float | None, tflops: float | None, seconds: float) -> float | None:
    least = least_seconds(work, gbs, tflops)
    return None if least is None else least / seconds


def _energy(cell: Mapping[str, Any], tokens: int, context: Context) -> Energy | None:
    joules: float | None = cell["joules"]
    if joules is None:
        return None
    per_token = joules / tokens
    net = None if context.idle_watts is None else max(0.0, joules - context.idle_watts * cell["seconds"]) / tokens
    source = "NVML's energy counter" if context.gpus else "the CPU's own counter (RAPL)"
    return Energy(
        joules=joules, joules_per_token=per_token, kwh_per_million=per_token / 3.6, net_joules_per_token=net,
        sampled_joules=cell["sampled_joules"], source=source,
    )  # fmt: skip


def _costs(
    tokens_per_s: float, job: BenchJob, loaded: Mapping[str, Any], context: Context
) -> tuple[cost.TokenCost, ...]:
    here = context.environment.get("instance")
    costs = []
    if here:
        own = cost.on_instance(str(here), context.region, tokens_per_s, devices=1 if context.gpus else None)
        costs += [own] if own else []
    if context.gpus and context.gpu is None:
        return tuple(costs)  # a GPU that the catalogue lacks is as fast as no other
    others = cost.elsewhere(
        tokens_per_s,
        context.region,
        gpu=context.gpu.key if context.gpu else None,
        devices=1,
        weight_bytes=int(loaded["weight_bytes"]),
        vcpus=int(context.environment["vcpus"]),
        number="bf16" if job.dtype == "int4" else job.dtype,  # int4 is widened to it
    )
    costs += [item for item in others if item.instance != here]
    return tuple(costs)


def _notes(cell: Mapping[str, Any]) -> Iterator[str]:
    if because := cell["eager_because"]:
        yield f"the decode step is not compiled: {because}"
    if together := cell["together"]:
        yield f"{together} tokens arrived with the one after them: alone they were not text"


def _doubts(job: BenchJob, samples: Samples, cell: Mapping[str, Any], context: Context) -> Iterator[str]:
    if abs(samples.drift) > STEADY:
        yield f"steps were not steady: the second half of each run was {samples.drift:+.1%} against the first"
    medians = [statistics.median(run) for run in samples.runs]
    if len(medians) > 1 and statistics.stdev(medians) / statistics.fmean(medians) > _VARIES:
        yield f"runs differ by {statistics.stdev(medians) / statistics.fmean(medians):.0%}: use more --runs"
    low, high = min(cell["bandwidth"], default=0.0), max(cell["bandwidth"], default=0.0)
    if high > 1.3 * low and not context.gpus:
        yield f"others use this machine's memory: reads ran at {low:.0f} to {high:.0f} GB/s"
    others = cell["others"]
    if not context.gpus and others is not None and others > _BUSY:
        yield f"other programs took {others:.0%} of this machine's CPUs during the run"
    if job.in_turn is not None and not cell["in_turn"]:
        yield "the other benchmark ended early: not every run was in turn"
    if job.device == "cuda" and samples.launching >= _LAUNCH_BOUND:
        yield (
            f"bound by launching: the CPU needs {samples.launching:.0%} of a step's time to launch it,"
            " and the GPU waits for it"
        )
    if samples.overhead > _OVERHEAD:
        yield f"the harness took {samples.overhead:.1%} of the time"
    if samples.clocks is not None and abs(samples.clocks - 1) > _CLOCKS:
        yield f"the steps took {samples.clocks:.3f} times as long by this clock as by the engine's own"


def _key(job: BenchJob, batch: int, prompt: int, context: Context) -> dict[str, str | int | None]:
    environment = context.environment
    gpus = environment["gpus"]
    return {
        "instance": environment["instance"], "machine": None if environment["instance"] else environment["machine"],
        "gpu": gpus[0]["name"] if gpus and context.gpus else environment["processor"], "driver": environment["driver"],
        "image": environment["image"], "ami": environment["ami"], "engine": job.engine, "model": job.shape.name,
        "dtype": job.dtype, "batch": batch, "prompt": prompt, "new": job.new, "mode": job.mode or None,
        **({"cache": job.cache} if job.cache else {}), **({"threads": job.threads} if job.threads else {}),
    }  # fmt: skip
