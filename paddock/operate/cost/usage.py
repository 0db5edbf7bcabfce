"""Use of GPUs in a period by the fleet's Prometheus: queries as data, on metrics that the fleet exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import Final

from paddock.monitoring.metrics import runner_jobs
from paddock.monitoring.metrics.counters import growth
from paddock.operate.sources.prometheus import PrometheusReader, Sample
from paddock.operate.sources.unavailable import Unavailable

_A_GPU = 'resource="nvidia_com_gpu"'
_ALLOCATABLE = f"sum by (node) (kube_node_status_allocatable{{{_A_GPU}}}) > 0"
_PODS = "kube_pod_status_phase"
_JOB = ("repository", "job_workflow_ref", "scale_set")


def _held(phases: str) -> str:
    return f"sum by (node) ({runner_jobs.held(phases)})"


@dataclass(frozen=True, slots=True)
class Query:
    """An expression by its key; `{days}` is the period. `present`: a metric without which no answer is not zero."""

    key: str
    expression: str
    present: str = ""


def _hours(vector: str) -> str:
    """Return the expression for hours: the sum over steps of five minutes."""
    return f"sum_over_time(({vector})[{{days}}d:5m]) / 12"


QUERIES: Final = (
    Query("covered", _hours(f"count({_PODS}) > bool 0")),
    Query("allocatable", _hours(f"sum({_ALLOCATABLE})")),
    Query("running", _hours(f"sum({_held('Running')})"), _PODS),
    Query("pull", _hours(f"sum({_held('Pending')})"), _PODS),
    Query("empty", _hours(f"sum(({_ALLOCATABLE}) unless on(node) ({_held('Running|Pending')}))"), _PODS),
    Query(
        "stranded",
        _hours(f"sum(clamp_min(({_ALLOCATABLE}) - on(node) ({_held('Running|Pending')}), 0))"),
        _PODS,
    ),
    Query("idle runners", _hours("sum by (name) (gha_idle_runners)")),
    Query("utilisation", "avg by (modelName) (avg_over_time(DCGM_FI_DEV_GPU_UTIL[{days}d]))"),
    Query(
        "workflows",
        "sum by (organization, repository, job_workflow_name) "
        f"({growth('gha_job_execution_duration_seconds_sum', '{days}d')}) / 3600",
    ),
    # A pod that is on a node has its GPU, also while its image is pulled.
    Query("jobs' GPUs", _hours(runner_jobs.by_job(runner_jobs.held("Running|Pending"), *_JOB))),
    Query("jobs' seen", _hours(runner_jobs.by_job(runner_jobs.SEEN, *_JOB))),
    Query("jobs' busy", _hours(runner_jobs.by_job(runner_jobs.BUSY, *_JOB))),
    Query("jobs' idle", _hours(runner_jobs.by_job(runner_jobs.IDLE, *_JOB))),
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Answers by the key of the query; a reason for each that has none."""

    url: str = ""
    answers: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def number(self, key: str) -> float | None:
        """Return the one number of an answer, None where there is none."""
        samples = self.answers.get(key)
        return samples[0].value if samples else None


def read(reader: PrometheusReader, end: date, days: int) -> Usage:
    """Ask every query. One that fails leaves the others, unless nobody answers at all."""
    at = datetime.combine(end, time(), UTC)
    answers: dict[str, tuple[Sample, ...]] = {}
    reasons: dict[str, str] = {}
    for query in QUERIES:
        try:
            samples = reader.query(query.expression.replace("{days}", str(days)), at)
        except Unavailable as error:
            reasons[query.key] = str(error)
            if query is QUERIES[0]:
                return Usage(reader.url, {}, {query.key: str(error) for query in QUERIES})
            continue
        if not samples and query.present and answers.get("covered"):
            samples = (Sample({}, 0.0),)
        if samples:
            answers[query.key] = samples
        else:
            reasons[query.key] = "Prometheus has no samples of it in the period"
    return Usage(reader.url, answers, reasons)
