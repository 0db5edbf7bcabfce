"""Metrics of ARC's listeners: what the chart is given, and so what each one is labelled with.

ARC 0.14.2, cmd/ghalistener/metrics and the chart's `listenerMetrics` (read 2026-11-25). Without them the listener has
labels of its own, in which no workflow is named. A job's name is left out: a matrix makes a series of each of its jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SCALE_SET: Final = ("name", "namespace", "repository", "organization", "enterprise")
JOB: Final = ("repository", "organization", "enterprise", "event_name", "job_workflow_name", "job_workflow_target")
GAUGES: Final = (
    *("gha_assigned_jobs", "gha_running_jobs", "gha_registered_runners", "gha_busy_runners"),
    *("gha_min_runners", "gha_max_runners", "gha_desired_runners", "gha_idle_runners"),
)
COUNTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "gha_started_jobs_total": JOB,
    "gha_completed_jobs_total": (*JOB, "job_result"),
}
HISTOGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "gha_job_startup_duration_seconds": JOB,
    "gha_job_execution_duration_seconds": (*JOB, "job_result"),
}
STARTUP_SECONDS: Final = (5, 10, 20, 30, 60, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, 2400, 3600, 7200)
EXECUTION_SECONDS: Final = (10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Upper bounds of the buckets. The listener's own end at an hour, which a GPU job often takes."""


def chart_values() -> dict[str, Any]:
    """Return the chart's `listenerMetrics`."""
    bounds = {"gha_job_startup_duration_seconds": STARTUP_SECONDS}
    return {
        "counters": {name: {"labels": list(labels)} for name, labels in COUNTERS.items()},
        "gauges": {name: {"labels": list(SCALE_SET)} for name in GAUGES},
        "histograms": {
            name: {"labels": list(labels), "buckets": [float(s) for s in bounds.get(name, EXECUTION_SECONDS)]}
            for name, labels in HISTOGRAMS.items()
        },
    }
