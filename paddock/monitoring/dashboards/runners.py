"""The dashboard of runners: jobs, how long they wait, and what serves them."""

from __future__ import annotations

from paddock.monitoring.dashboards.panel import Dashboard, Panel, Query, Row
from paddock.monitoring.metrics.counters import growth

_STARTUP = "gha_job_startup_duration_seconds"
_EXECUTION = "gha_job_execution_duration_seconds"


def _number(title: str, expression: str, description: str, unit: str = "short") -> Panel:
    return Panel(title, (Query(expression, title),), description, unit, "number", 4)


def _quantile(share: float, metric: str, by: str = "") -> str:
    return f"histogram_quantile({share}, sum by (le{by}) ({growth(f'{metric}_bucket', '1h')}))"


def _scale_set(*metrics: tuple[str, str]) -> tuple[Query, ...]:
    return tuple(Query(metric, f"{{{{name}}}} {word}") for metric, word in metrics)


DASHBOARD = Dashboard(
    "paddock-runners",
    "Paddock: runners",
    "Jobs of the fleet, by scale set and repository.",
    (
        Row(
            "Now",
            (
                _number("Jobs assigned", "sum(gha_assigned_jobs) or vector(0)", "Waiting and running."),
                _number("Jobs running", "sum(gha_running_jobs) or vector(0)", "On a runner."),
                _number(
                    "Waiting",
                    "sum(gha_assigned_jobs - gha_running_jobs) or vector(0)",
                    "Assigned to a scale set and without a runner.",
                ),
                _number("Idle runners", "sum(gha_idle_runners) or vector(0)", "Registered, and without a job."),
                _number(
                    "Failed runners",
                    "sum(gha_controller_failed_ephemeral_runners) or vector(0)",
                    "They count against max until they are deleted.",
                ),
                _number(
                    "Wait of 95 in 100",
                    _quantile(0.95, _STARTUP),
                    "Of the jobs that started in the last hour.",
                    "s",
                ),
            ),
        ),
        Row(
            "Jobs",
            (
                Panel(
                    "Assigned and running",
                    _scale_set(("gha_assigned_jobs", "assigned"), ("gha_running_jobs", "running")),
                    "The distance between the two is the queue.",
                ),
                Panel(
                    "Time to a runner",
                    (
                        Query(_quantile(0.5, _STARTUP), "half of the jobs"),
                        Query(_quantile(0.95, _STARTUP), "95 in 100"),
                    ),
                    "From the assignment to the scale set to the runner that takes the job, over an hour.",
                    "s",
                ),
                Panel(
                    "Time to a runner by repository",
                    (Query(_quantile(0.95, _STARTUP, ", repository"), "{{repository}}"),),
                    "95 in 100 jobs of an hour.",
                    "s",
                ),
                Panel(
                    "Duration by workflow",
                    (Query(_quantile(0.5, _EXECUTION, ", job_workflow_name"), "{{job_workflow_name}}"),),
                    "Half of the jobs take less, over an hour.",
                    "s",
                ),
                Panel(
                    "Jobs ended, by result",
                    (Query(f"sum by (job_result) ({growth('gha_completed_jobs_total', '1h')})", "{{job_result}}"),),
                    "In an hour.",
                ),
                Panel(
                    "Jobs started, by repository",
                    (Query(f"sum by (repository) ({growth('gha_started_jobs_total', '1h')})", "{{repository}}"),),
                    "In an hour.",
                ),
            ),
        ),
        Row(
            "Scale sets",
            (
                Panel(
                    "Runners",
                    _scale_set(
                        ("gha_desired_runners", "desired"),
                        ("gha_registered_runners", "registered"),
                        ("gha_busy_runners", "busy"),
                        ("gha_max_runners", "at most"),
                    ),
                    "A set at its maximum makes jobs wait on purpose.",
                ),
                Panel(
                    "Runners on their way, and failed",
                    _scale_set(
                        ("gha_controller_pending_ephemeral_runners", "pending"),
                        ("gha_controller_failed_ephemeral_runners", "failed"),
                    ),
                    "As the controller counts them.",
                ),
                Panel(
                    "Listeners",
                    (Query("gha_controller_running_listeners", "{{name}}"),),
                    "One a scale set. A set without one gets no jobs.",
                ),
                Panel(
                    "Restarts of listeners",
                    (
                        Query(
                            "sum by (pod) (increase(kube_pod_container_status_restarts_total"
                            '{namespace=~"arc-systems.*", pod=~".+-listener"}[15m]))',
                            "{{pod}}",
                        ),
                    ),
                    "In a quarter of an hour.",
                ),
            ),
        ),
    ),
)
