"""GPUs by repository and workflow: hours, utilisation, and the part of the bill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from paddock import catalog
from paddock.catalog import UnknownInstanceType
from paddock.fleet import Fleet, GpuPool
from paddock.operate.cost.bill import Charge
from paddock.operate.cost.report import JobUse
from paddock.operate.cost.usage import Usage
from paddock.operate.sources.prometheus import Sample

KEYS = ("jobs' GPUs", "jobs' seen", "jobs' busy", "jobs' idle")
_HELD, _SEEN, _BUSY, _IDLE = KEYS
UNKNOWN = (
    "Prometheus has no metric that joins a job with its GPU: the fleet's own has one, docs/monitoring.md has the "
    "configuration of another kube-state-metrics"
)


@dataclass(slots=True)
class _Sum:
    """Hours by the key of their query, and by pool."""

    hours: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    pools: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def job_use(
    fleet: Fleet, usage: Usage | None, charges: Mapping[str, Sequence[Charge] | None], *, whole: bool
) -> tuple[JobUse, ...]:
    """Return workflows, those with the most GPU-hours first.

    `charges` of a pool are None where they are not known. Without `whole`, that is samples of the whole period, a part
    of its bill is not known either.
    """
    sums: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
    pools = {runner.scale_set: runner.pool for runner in fleet.runners.values()}
    for key in KEYS:
        for sample in usage.answers.get(key, ()) if usage else ():
            pool = pools.get(sample.labels.get("scale_set", ""))
            if pool is None:  # another fleet's
                continue
            entry = sums[_names(sample)]
            entry.hours[key] += sample.value
            if key == _HELD:
                entry.pools[pool] += sample.value
    prices = {name: _price(fleet.pools[name], charges.get(name)) if whole else None for name in fleet.pools}
    rows = [_row(repository, workflow, entry, prices) for (repository, workflow), entry in sums.items()]
    held = [row for row in rows if row.gpu_hours > 0]
    return tuple(sorted(held, key=lambda row: (-row.gpu_hours, row.repository, row.workflow)))


def _row(repository: str, workflow: str, entry: _Sum, prices: Mapping[str, float | None]) -> JobUse:
    hours, seen = entry.hours, entry.hours.get(_SEEN, 0.0)
    return JobUse(
        repository=repository,
        workflow=workflow,
        gpu_hours=round(hours[_HELD], 2),
        gpu_percent=round(100 * hours.get(_BUSY, 0.0) / seen, 1) if seen else None,
        idle_gpu_hours=round(hours.get(_IDLE, 0.0), 2) if seen else None,
        usd=_usd(entry.pools, prices),
    )


def _usd(hours: Mapping[str, float], prices: Mapping[str, float | None]) -> float | None:
    parts = [(held, prices.get(pool)) for pool, held in hours.items()]
    if any(price is None for _, price in parts):
        return None
    return round(sum(held * price for held, price in parts if price is not None), 2)


def _price(pool: GpuPool, charges: Sequence[Charge] | None) -> float | None:
    """Return what a GPU-hour of a pool cost, all its charges counted; None where its instances are not known."""
    if not charges:
        return None
    hours = 0.0
    for charge in charges:
        if charge.instance:
            try:
                hours += charge.quantity * pool.gpu_resources_per_node(catalog.instance(charge.instance))
            except UnknownInstanceType:
                return None
    return sum(charge.usd for charge in charges) / hours if hours else None


def _names(sample: Sample) -> tuple[str, str]:
    return sample.labels.get("repository", ""), workflow_name(sample.labels.get("job_workflow_ref", ""))


def workflow_name(ref: str) -> str:
    """Return the name of a workflow's file: `ci` of `acme/app/.github/workflows/ci.yml@refs/heads/main`.

    ARC's listener names workflows so (cmd/ghalistener/metrics/workflow_ref_parser.go).
    """
    name = PurePosixPath(ref.partition("@")[0]).name
    return name.removesuffix(".yml").removesuffix(".yaml")


def idle(rows: Sequence[JobUse]) -> float | None:
    """Return the GPU-hours that jobs had and did nothing with, None where DCGM saw none of them."""
    known = [row.idle_gpu_hours for row in rows if row.idle_gpu_hours is not None]
    return sum(known) if known else None


def percent_of(rows: Sequence[JobUse]) -> Mapping[tuple[str, str], float]:
    """Return the utilisation of each repository's workflow that has one."""
    return {(row.repository, row.workflow): row.gpu_percent for row in rows if row.gpu_percent is not None}


def why_unknown(usage: Usage | None) -> Iterator[str]:
    """Yield the reason where no job is joined with its GPU."""
    if usage is not None and not usage.answers.get(_HELD):
        reason = usage.reasons.get(_HELD, "")
        yield reason if reason and "no samples" not in reason else UNKNOWN
