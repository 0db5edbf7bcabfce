"""Report of a job's GPU use, as Markdown for the page of the workflow run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paddock.gpu.job_hooks.admission import gibibytes
from paddock.gpu.job_hooks.ccache import Compilations
from paddock.gpu.job_hooks.log import table_cell
from paddock.gpu.job_hooks.record import Record
from paddock.gpu.monitoring.summary import GpuSummary

_NOT_SLOWED = frozenset({"idle", "application-clocks"})
"""Reasons of low clocks that are not counted as slowed down."""
_REASON_TEXT = {
    "software-power-cap": "power limit",
    "hardware-power-brake": "power brake",
    "hardware-slowdown": "its hardware",
    "hardware-thermal": "heat (hardware)",
    "software-thermal": "heat",
}
UNKNOWN = "unknown"
_HEAD = ("| GPU | peak memory | mean utilisation | idle | energy | slowed down by |", "|:--|--:|--:|--:|--:|:--|")


@dataclass(frozen=True, slots=True)
class JobUsage:
    """Input of the report: `record` is None if nothing was sampled; `missing` is time without one, `why` its reason."""

    record: Record | None
    shared: bool = False
    missing: float = 0.0
    why: str = ""
    compilations: Compilations | None = None
    notes: Sequence[str] = ()


def markdown(usage: JobUsage) -> str:
    lines = ["### GPU use of this job", ""]
    if usage.record is None:
        lines += [f"How the GPUs were used is not known: {table_cell(usage.why) or 'nothing was sampled'}.", ""]
    else:
        lines += _usage_section(usage.record, usage)
    points = [*usage.notes]
    if usage.compilations:
        points.append(_compilations(usage.compilations))
    lines += [f"- {table_cell(text)}" for text in points]
    return "\n".join(lines).rstrip() + "\n"


def _usage_section(record: Record, usage: JobUsage) -> Iterator[str]:
    summary = record.summary
    sentences = [insight.text.replace("of the time", "of this job") for insight in summary.insights]
    if len(summary.gpus) == 1:
        sentences = [text.replace(f"GPU {summary.gpus[0].index} ", "The GPU ", 1) for text in sentences]
    for text in sentences:
        yield f"{table_cell(text)}."
        yield ""
    yield from _HEAD
    for gpu in summary.gpus:
        yield _row(gpu)
    yield ""
    yield f"<sub>{' '.join(_footnotes(record, usage))}</sub>"
    yield ""


def _row(gpu: GpuSummary) -> str:
    memory, busy = gpu.metric("memory"), gpu.metric("utilisation")
    peak = UNKNOWN
    if memory and gpu.memory_total:
        share = 100 * memory.max / gpu.memory_total
        peak = f"{gibibytes(memory.max)} of {gibibytes(gpu.memory_total)} ({share:.0f} %)"
    cells = (
        f"{gpu.index} {table_cell(gpu.name or '')}".strip(),
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
    reasons = [
        f"{_REASON_TEXT.get(slowed.reason, slowed.reason.replace('-', ' '))} {100 * slowed.share:.0f} %"
        for slowed in gpu.slowed
        if slowed.reason not in _NOT_SLOWED and slowed.share >= 0.005
    ]
    return ", ".join(reasons) or "nothing"


def _footnotes(record: Record, usage: JobUsage) -> Iterator[str]:
    summary = record.summary
    yield f"{summary.samples} samples in {duration(summary.seconds)}; a peak between two of them is not seen."
    counted, integrated = (
        [gpu for gpu in summary.gpus if gpu.energy_source == source] for source in ("counter", "integrated")
    )
    if counted:
        yield "Energy is by the GPU's own counter."
    if integrated:
        of = f" of {', '.join(f'GPU {gpu.index}' for gpu in integrated)}" if counted else ""
        yield f"Energy{of} is the power at each sample times the time between them."
    if usage.shared:
        yield "The GPU is shared: all of this is of the whole GPU, with what other jobs did on it."
    if summary.ended:
        yield f"It ends early: {table_cell(summary.ended).rstrip('.')}."
    if usage.missing:
        why = f": {table_cell(usage.why)}" if usage.why else ""
        yield f"The last {duration(usage.missing)} of the job are not in it{why}."


def _compilations(compilations: Compilations) -> str:
    total = compilations.hits + compilations.misses
    share = f"{100 * compilations.hits / total:.0f} %"
    return f"ccache: {compilations.hits} of {total} compilations came from the cache ({share})"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
