"""What a job made of its GPUs, in words and a table, for the page of the workflow's run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paddock.gpu.job_hooks.admission import gibibytes
from paddock.gpu.job_hooks.ccache import Compilations
from paddock.gpu.job_hooks.log import cell
from paddock.gpu.job_hooks.record import Record
from paddock.gpu.monitoring.summary import GpuSummary

_USUAL = frozenset({"idle", "application-clocks"})
"""Reasons of low clocks that are none."""
_WORDS = {
    "software-power-cap": "power limit",
    "hardware-power-brake": "power brake",
    "hardware-slowdown": "its hardware",
    "hardware-thermal": "heat (hardware)",
    "software-thermal": "heat",
}
UNKNOWN = "unknown"
_HEAD = (
    "| GPU | peak memory | mean utilisation | idle | energy | slowed down by |",
    "|:--|--:|--:|--:|--:|:--|",
)


@dataclass(frozen=True, slots=True)
class Told:
    """`record` is None where nothing was sampled; `missing` is how long the sampler was not there, and `why`."""

    record: Record | None
    shared: bool = False
    missing: float = 0.0
    why: str = ""
    compilations: Compilations | None = None
    notes: Sequence[str] = ()


def markdown(told: Told) -> str:
    lines = ["### GPU use of this job", ""]
    if told.record is None:
        lines += [f"How the GPUs were used is not known: {cell(told.why) or 'nothing was sampled'}.", ""]
    else:
        lines += _use(told.record, told)
    points = [*told.notes]
    if told.compilations:
        points.append(_compiled(told.compilations))
    lines += [f"- {cell(text)}" for text in points]
    return "\n".join(lines).rstrip() + "\n"


def _use(record: Record, told: Told) -> Iterator[str]:
    summary = record.summary
    sentences = [insight.text.replace("of the time", "of this job") for insight in summary.insights]
    if len(summary.gpus) == 1:
        sentences = [text.replace(f"GPU {summary.gpus[0].index} ", "The GPU ", 1) for text in sentences]
    for text in sentences:
        yield f"{cell(text)}."
        yield ""
    yield from _HEAD
    for gpu in summary.gpus:
        yield _row(gpu)
    yield ""
    yield f"<sub>{' '.join(_small(record, told))}</sub>"
    yield ""


def _row(gpu: GpuSummary) -> str:
    memory, busy = gpu.metric("memory"), gpu.metric("utilisation")
    peak = UNKNOWN
    if memory and gpu.memory_total:
        share = 100 * memory.max / gpu.memory_total
        peak = f"{gibibytes(memory.max)} of {gibibytes(gpu.memory_total)} ({share:.0f} %)"
    cells = (
        f"{gpu.index} {cell(gpu.name or '')}".strip(),
        peak,
        f"{busy.mean:.0f} %" if busy else UNKNOWN,
        f"{100 * gpu.idle:.0f} %" if gpu.idle is not None else UNKNOWN,
        f"{gpu.energy / 3600:.{1 if gpu.energy >= 3600 else 2}f} Wh" if gpu.energy is not None else UNKNOWN,
        _slowed(gpu),
    )
    return f"| {' | '.join(cells)} |"


def _slowed(gpu: GpuSummary) -> str:
    if gpu.slowed is None:
        return UNKNOWN
    told = [
        f"{_WORDS.get(one.reason, one.reason.replace('-', ' '))} {100 * one.share:.0f} %"
        for one in gpu.slowed
        if one.reason not in _USUAL and one.share >= 0.005
    ]
    return ", ".join(told) or "nothing"


def _small(record: Record, told: Told) -> Iterator[str]:
    summary = record.summary
    yield f"{summary.samples} samples in {duration(summary.seconds)}; a peak between two of them is not seen."
    counted, added = ([gpu for gpu in summary.gpus if gpu.energy_source == one] for one in ("counter", "integrated"))
    if counted:
        yield "Energy is by the GPU's own counter."
    if added:
        of = f" of {', '.join(f'GPU {gpu.index}' for gpu in added)}" if counted else ""
        yield f"Energy{of} is the power at each sample times the time between them."
    if told.shared:
        yield "The GPU is shared: all of this is of the whole GPU, with what other jobs did on it."
    if summary.ended:
        yield f"It ends early: {cell(summary.ended).rstrip('.')}."
    if told.missing:
        why = f": {cell(told.why)}" if told.why else ""
        yield f"The last {duration(told.missing)} of the job are not in it{why}."


def _compiled(found: Compilations) -> str:
    every = found.hits + found.misses
    return f"ccache: {found.hits} of {every} compilations came from the cache ({100 * found.hits / every:.0f} %)"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
