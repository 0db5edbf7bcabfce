"""GPU-hours that no job had, and whose jobs had the others, as far as exported metrics say it."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.fleet import Fleet
from paddock.operate.cost.report import Metrics, Utilisation, Waste, Workflow
from paddock.operate.cost.usage import Usage

_WHOLE = 0.99
"""Part of the period for which there must be samples before a share of its bill is a sum of money."""
_NO_PROMETHEUS = "no Prometheus was asked"
_ASK = "--prometheus URL, the fleet's own or yours that reads it"
_NEVER = {
    "boot": (
        "nodes from the start of their instance until they register",
        "no exported metric begins before the node is in the cluster",
        "start times of instances beside those of nodes; ./inv verify measures one cold start by phase",
    ),
    "interrupted": (
        "jobs that a reclaimed spot node ended",
        "no exported metric counts reclaimed nodes or the work lost with them",
        "an exporter of interruption notices beside the times of jobs; ./inv status counts notices of the last hour",
    ),
}
_MEANINGS = {
    "idle runners": "GPUs of runners that wait for a job",
    "empty nodes": "GPUs of nodes on which no pod has one",
    "stranded": "free GPUs of nodes on which other pods have some",
    "image pull": "GPUs of pods that are on a node and have not started",
}
_KEYS = {"empty nodes": "empty", "image pull": "pull"}


def waste(fleet: Fleet, usage: Usage | None, bill: float | None) -> Iterator[Waste]:
    """Yield every kind of waste. `bill` is what the fleet's one pool cost, None where that is not known."""
    for kind, meaning in _MEANINGS.items():
        hours, reason = _hours(fleet, usage, kind)
        needs = "" if hours is not None else (_ASK if usage is None else "that metric in that Prometheus")
        share = _share(usage, hours)
        usd = None if bill is None or share is None else round(bill * share, 2)
        rounded = None if hours is None else round(hours, 2)
        yield Waste(kind=kind, meaning=meaning, gpu_hours=rounded, usd=usd, unknown=reason, needs=needs)
    for kind, (meaning, reason, needs) in _NEVER.items():
        yield Waste(kind=kind, meaning=meaning, gpu_hours=None, usd=None, unknown=reason, needs=needs)


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


def workflows(usage: Usage | None, bill: float | None) -> tuple[Workflow, ...]:
    """Return workflows, the longest first."""
    samples = [s for s in usage.answers.get("workflows", ()) if s.value > 0] if usage else []
    everything = sum(sample.value for sample in samples)
    rows = (
        Workflow(
            repository=sample.labels.get("repository", ""),
            workflow=sample.labels.get("job_workflow_name", ""),
            hours=round(sample.value, 2),
            share=round(sample.value / everything, 4),
            usd=None if bill is None else round(bill * sample.value / everything, 2),
            gpu_percent=None,
        )
        for sample in samples
    )
    return tuple(sorted(rows, key=lambda row: (-row.hours, row.repository, row.workflow)))


def metrics(usage: Usage | None) -> Metrics | None:
    """Return what is said of the server itself."""
    if usage is None:
        return None
    covered = usage.number("covered")
    hours = None if covered is None else round(covered, 1)
    return Metrics(url=usage.url, hours=hours, unknown=usage.reasons.get("covered", ""))
