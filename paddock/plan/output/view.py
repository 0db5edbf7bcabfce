"""Rows and sentences that several renderers share, taken from the document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from paddock.catalog.cuda_match import Outcome
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.plan.document.model import Cost, DoctorReading, Fit, PlanDocument, Pool, Quota, Resource, Runner
from paddock.plan.finding import Finding, Severity
from paddock.plan.output.format import count, gibibytes, money

_CAPACITY = {"spot": "spot", "on-demand": "on-demand", "reserved": "reserved", "capacity-block": "capacity block"}
_SEVERITIES: Mapping[Severity, int] = {"error": 0, "warning": 1, "info": 2}
CHECKS: Mapping[str, str] = {
    "CMP001": "CUDA on driver",
    "CMP002": "CUDA on GPU",
    "CMP003": "Driver on GPU",
    "CMP004": "Driver support",
    "CMP005": "Image on Kubernetes",
    "CMP006": "Image age",
    "CMP007": "Kubernetes support",
    "CMP008": "ARC labels",
    "CMP009": "GitHub Enterprise Server",
    "CMP010": "Runner age",
}
"""Titles of the compatibility checks."""
OUTCOMES: Mapping[Outcome, str] = {
    "impossible": "impossible",
    "needs-compat": "needs compat package",
    "unknown": "unknown",
    "minor-version": "minor-version mode",
    "ok": "ok",
}
"""Outcomes of a check in words, worst first."""


@dataclass(frozen=True, slots=True)
class Summary:
    state: Literal["ready", "warning", "error"]
    words: str


def summary(document: PlanDocument) -> Summary:
    """Return what the plan comes to, in words."""
    severities = [finding.severity for finding in document.findings]
    severities += [line.severity for line in document.doctor.results] if document.doctor else []
    errors, warnings = severities.count("error"), severities.count("warning")
    steps = f", after {count(len(document.before_up), 'step')}" if document.before_up else ""
    if errors:
        and_warnings = f", {count(warnings, 'warning')}" if warnings else ""
        return Summary("error", f"Not ready: {count(errors, 'error')}{and_warnings}")
    if warnings:
        return Summary("warning", f"Ready, with {count(warnings, 'warning')}{steps}")
    return Summary("ready", f"Ready{steps}")


def read_by_doctor(reading: DoctorReading) -> str:
    """Return when and where the doctor read what `pulumi up` would meet, and whether that is old."""
    at = f"{reading.at[:16].replace('T', ' ')} UTC"
    account = f"account {reading.account}" if reading.account else "an account that it could not name"
    age = ""
    if reading.days > 0:
        age = f". That is {count(reading.days, 'day')} ago, and the account may have changed: run ./inv doctor again"
    elif reading.days < 0:
        age = ". That is after this plan: one of the clocks is wrong"
    counts = reading.counts
    found = ", ".join(f"{counts[status]} {status.upper()}" for status in ("fail", "unknown", "warn") if counts[status])
    return f"Read by the doctor on {at} in {account}: {found or 'nothing in the way'}, {reading.passed} PASS{age}"


def place(document: PlanDocument) -> list[str]:
    """Return the organisation, the region, the version of Kubernetes and the cluster, those that are known."""
    organisation, fleet = re.sub(r"^https?://", "", document.github.url), document.fleet
    kubernetes = f"Kubernetes {fleet.kubernetes}" if fleet.kubernetes else ""
    return [part for part in (organisation, fleet.region, kubernetes, fleet.name) if part]


def figures(document: PlanDocument) -> list[tuple[str, str]]:
    """Return the fleet in a few amounts, each with what it counts."""
    pools = document.pools
    result = [
        (f"{len(document.runners):,}", "runners"),
        (f"{len(pools):,}", "GPU pools"),
        (f"{sum(p.nodes.min for p in pools):,}\u2013{sum(p.nodes.max for p in pools):,}", "GPU nodes"),
        (f"{sum(map(largest_gpus, pools)):,}", "GPUs at most"),
        (f"{len(cloud_resources(document)):,}", "resources"),
    ]
    if document.cost and not unknown_month(document.cost):
        result.append((money(document.cost.month.expected), "a month expected"))
    return result


def findings(document: PlanDocument) -> list[Finding]:
    """Return the findings, worst first."""
    return sorted(document.findings, key=lambda finding: _SEVERITIES[finding.severity])


def cloud_resources(document: PlanDocument) -> list[Resource]:
    """Return the resources that a cloud or a cluster would hold."""
    return [resource for resource in document.resources if resource.exists_in_cloud]


def owns_nodes(document: PlanDocument) -> bool:
    """Return whether the stack buys the nodes of its pools, rather than finding them there."""
    return all(pool.capacity for pool in document.pools)


def capacity(pool: Pool) -> str:
    """Return the ways to buy the pool's nodes, in the order they are tried."""
    return " then ".join(_CAPACITY.get(kind, kind) for kind in pool.capacity) or "nodes that exist already"


def size(pool: Pool) -> str:
    """Return the fewest and most nodes of the pool."""
    least = f"{pool.nodes.min}\u2013" if pool.nodes.min != pool.nodes.max else ""
    return f"{least}{count(pool.nodes.max, 'node')}"


def largest_gpus(pool: Pool) -> int:
    """Return the GPUs of the pool at its largest."""
    return pool.nodes.max * max((instance.gpus for instance in pool.instances), default=0)


def gpu_memory(pool: Pool) -> str:
    return next((gibibytes(instance.gpu_memory) for instance in pool.instances if instance.gpu_memory), "")


def privileges(runner: Runner) -> str:
    """Return what a job of the runner can become beyond its pod; empty where it stays there."""
    return "privileged: root on its node" if runner.privileged else ""


def job_range(runner: Runner) -> str:
    """Return the fewest and most runners."""
    return f"{runner.min}\u2013{runner.max}"


def lacking_quotas(document: PlanDocument) -> list[Quota]:
    """Return the quotas that a new account would have to raise."""
    return [quota for quota in document.quota if quota.shortfall > 0]


def unknown_month(cost: Cost) -> str:
    """Return what keeps a month's cost from being known, in words; empty where it is known."""
    if cost.month.expected.value is not None:
        return ""
    names = cost.month.expected.missing or cost.missing
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"What a month costs is not known: there is no price of {', '.join(names[:3])}{more}."


def unpriced(cost: Cost) -> str:
    """Return a sentence on how many resources have no price."""
    return f"{count(cost.resources.unpriced, 'unpriced resource')}." if cost.resources.types else ""


def alike(fits: Iterable[Fit]) -> list[list[Fit]]:
    """Return fits together that differ by their runner alone."""
    groups: dict[str, list[Fit]] = {}
    for fit in fits:
        groups.setdefault(fit.model_dump_json(exclude={"runner"}), []).append(fit)
    return list(groups.values())


def lack(fit: Fit) -> str:
    """Return what a node lacks for one job, in words."""
    short, request = fit.deficit, fit.request
    parts = [
        (short.gpus, f"{short.gpus} of {count(request.gpus, 'GPU')}"),
        (short.cpu, f"{format_cpu(short.cpu)} of {format_cpu(request.cpu)} CPU"),
        (short.memory, f"{format_memory(short.memory)} of {format_memory(request.memory)} memory"),
        (short.ephemeral_storage, f"{gibibytes(short.ephemeral_storage)} of disk"),
        (short.pods, "room for a pod"),
    ]
    return ", ".join(words for amount, words in parts if amount) or fit.limiting
