"""GPU-hours that no job had, and whose jobs had the others, as far as exported metrics say it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time

from paddock.fleet import Fleet
from paddock.operate.cost.jobs import idle, percent_of, why_unknown
from paddock.operate.cost.report import JobUse, Metrics, Utilisation, Waste, Workflow
from paddock.operate.cost.usage import Usage
from paddock.operate.sources.interruptions import Interruption
from paddock.operate.sources.prometheus import Sample

_WHOLE = 0.99
"""Part of the period for which there must be samples before a share of its bill is a sum of money."""
_NO_PROMETHEUS = "no Prometheus was asked"
_ASK = "--prometheus URL, the fleet's own or yours that reads it"
_NEVER = {
    "boot": (
        "nodes from the start of their instance until they register",
        "no exported metric begins before the node is in the cluster",
        "start times of instances and of their nodes; ./inv verify measures one cold start by phase",
    ),
}
_INTERRUPTED = "jobs that a reclaimed spot node ended"
_RECORD = "./inv runners.rerun, which keeps a record of each such job on the machine where it runs"
_IDLE = "idle in jobs"
_MEANINGS = {
    "idle runners": "GPUs of runners that wait for a job",
    "empty nodes": "GPUs of nodes on which no pod has one",
    "stranded": "free GPUs of nodes on which other pods have some",
    "image pull": "GPUs of pods that are on a node and have not started",
    _IDLE: "GPUs that a job had and did nothing with for five minutes and more",
}
_KEYS = {"empty nodes": "empty", "image pull": "pull"}


def waste(
    fleet: Fleet, usage: Usage | None, bill: float | None, jobs: Sequence[JobUse], lost: float | str
) -> Iterator[Waste]:
    """Yield every kind of waste. `bill` is what the fleet's one pool cost, None where that is not known.

    `lost`: GPU-hours of interrupted jobs, or why they are not known.
    """
    for kind, meaning in _MEANINGS.items():
        hours, reason = _idle(usage, jobs) if kind == _IDLE else _hours(fleet, usage, kind)
        needs = "" if hours is not None else (_ASK if usage is None else "that metric in that Prometheus")
        share = _share(usage, hours)
        usd = None if bill is None or share is None else round(bill * share, 2)
        rounded = None if hours is None else round(hours, 2)
        yield Waste(kind=kind, meaning=meaning, gpu_hours=rounded, usd=usd, unknown=reason, needs=needs)
    for kind, (meaning, reason, needs) in _NEVER.items():
        yield Waste(kind=kind, meaning=meaning, gpu_hours=None, usd=None, unknown=reason, needs=needs)
    yield _interrupted(usage, bill, lost)


def _interrupted(usage: Usage | None, bill: float | None, lost: float | str) -> Waste:
    known = None if isinstance(lost, str) else lost
    share = _share(usage, known)
    return Waste(
        kind="interrupted",
        meaning=_INTERRUPTED,
        gpu_hours=None if known is None else round(known, 2),
        usd=None if bill is None or share is None else round(bill * share, 2),
        unknown=lost if isinstance(lost, str) else "",
        needs=_RECORD if isinstance(lost, str) else "",
        at_least=known is not None,
    )


def _idle(usage: Usage | None, jobs: Sequence[JobUse]) -> tuple[float | None, str]:
    if usage is None:
        return None, _NO_PROMETHEUS
    hours = idle(jobs)
    return hours, "" if hours is not None else next(why_unknown(usage), "DCGM has no metrics of the GPUs of jobs")


def lost_hours(record: Sequence[Interruption] | None, start: date, end: date) -> float | str:
    """Return the GPU-hours in the period of jobs that ended with their node, or why they are not known."""
    if record is None:
        return "nothing on this machine has kept a record of interrupted jobs"
    first, last = (datetime.combine(day, time(), UTC) for day in (start, end))
    return sum(
        max((min(ended, last) - max(began, first)).total_seconds(), 0.0) / 3600 * interruption.gpus
        for interruption in record
        for began, ended in (interruption.span,)
    )


def _hours(fleet: Fleet, usage: Usage | None, kind: str) -> tuple[float | None, str]:
    if usage is None:
        return None, _NO_PROMETHEUS
    key = _KEYS.get(kind, kind)
    if kind != "idle runners":
        return usage.number(key), usage.reasons.get(key, "")
    gpus = {runner.scale_set: runner.gpus for runner in fleet.runners.values()}
    own = [s.value * gpus[s.labels.get("name", "")] for s in usage.answers.get(key, ()) if s.labels.get("name") in gpus]
    return (sum(own), "") if own else (None, usage.reasons.get(key, "Prometheus has no scale set of this fleet"))


def _share(usage: Usage | None, hours: float | None) -> float | None:
    """Return the part of all GPU-hours, None where they are not known."""
    everything = usage.number("allocatable") if usage else None
    return hours / everything if hours is not None and everything else None


def covers(usage: Usage | None, days: int) -> bool:
    """Return whether there are samples of the whole period."""
    covered = usage.number("covered") if usage else None
    return covered is not None and covered >= _WHOLE * days * 24


def utilisation(usage: Usage | None) -> Iterator[Utilisation]:
    """Yield the mean of each model of GPU."""
    for sample in usage.answers.get("utilisation", ()) if usage else ():
        yield Utilisation(gpu=sample.labels.get("modelName", ""), percent=round(sample.value, 1))


def workflows(usage: Usage | None, bill: float | None, jobs: Sequence[JobUse]) -> tuple[Workflow, ...]:
    """Return workflows, the longest first."""
    percent = percent_of(jobs)
    samples = [s for s in usage.answers.get("workflows", ()) if s.value > 0] if usage else []
    everything = sum(sample.value for sample in samples)
    rows = (
        Workflow(
            repository=_repository(sample),
            workflow=sample.labels.get("job_workflow_name", ""),
            hours=round(sample.value, 2),
            share=round(sample.value / everything, 4),
            usd=None if bill is None else round(bill * sample.value / everything, 2),
            gpu_percent=percent.get((_repository(sample), sample.labels.get("job_workflow_name", ""))),
        )
        for sample in samples
    )
    return tuple(sorted(rows, key=lambda row: (-row.hours, row.repository, row.workflow)))


def _repository(sample: Sample) -> str:
    """Return `owner/name`: the listener's metrics call the owner an organization."""
    names = (sample.labels.get("organization", ""), sample.labels.get("repository", ""))
    return "/".join(name for name in names if name)


def metrics(usage: Usage | None) -> Metrics | None:
    """Return what is known of the server itself."""
    if usage is None:
        return None
    covered = usage.number("covered")
    hours = None if covered is None else round(covered, 1)
    return Metrics(url=usage.url, hours=hours, unknown=usage.reasons.get("covered", ""))
