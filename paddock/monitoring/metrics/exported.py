"""Labels of every metric that rules and dashboards may read, by the exporter that publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from paddock.monitoring.metrics.dcgm import dcgm_metrics
from paddock.monitoring.metrics.runner_jobs import RUNNER_JOB, RUNNER_JOB_LABELS

GPU_LABELS = frozenset({"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"})
"""Labels of dcgm-exporter 4.8.2 (internal/pkg/rendermetrics; read 2026-11-23).

`Hostname` is the node's name also where the exporter asks another engine; the release after 4.8.2 calls it `hostname`.
Labels of the pod on a GPU are left out: a scrape may rename them, and they change with every job. Only what asks for a
job's use reads them (`runner_jobs.POD_LABELS`).
"""

_RESOURCE = frozenset({"node", "resource", "unit"})
_POD = frozenset({"namespace", "pod", "uid"})

KUBE_STATE_METRICS: Mapping[str, frozenset[str]] = {
    "kube_node_status_capacity": _RESOURCE,
    "kube_node_status_allocatable": _RESOURCE,
    "kube_node_spec_taint": frozenset({"node", "key", "value", "effect"}),
    "kube_pod_created": _POD,
    "kube_pod_status_phase": _POD | {"phase"},
    "kube_pod_container_status_restarts_total": _POD | {"container"},
    "kube_pod_container_resource_requests": _POD | {"container", "node", "resource", "unit"},
}
"""Exported by kube-state-metrics 2.x without a flag (docs/metrics/cluster/node-metrics.md and
docs/metrics/workload/pod-metrics.md; read 2026-11-24)."""

CUSTOM_RESOURCE_STATE: Mapping[str, frozenset[str]] = {RUNNER_JOB: RUNNER_JOB_LABELS}
"""Exported by kube-state-metrics with the configuration of `runner_jobs`."""

_SCALE_SET = frozenset({"name", "namespace", "repository", "organization", "enterprise"})
_JOB = frozenset(
    {
        *("repository", "organization", "enterprise", "job_name", "event_name"),
        *("job_workflow_ref", "job_workflow_name", "job_workflow_target"),
    }
)

ACTIONS_RUNNER_CONTROLLER: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            *("gha_assigned_jobs", "gha_running_jobs", "gha_registered_runners", "gha_busy_runners"),
            *("gha_min_runners", "gha_max_runners", "gha_desired_runners", "gha_idle_runners"),
            *("gha_controller_pending_ephemeral_runners", "gha_controller_running_ephemeral_runners"),
            *("gha_controller_failed_ephemeral_runners", "gha_controller_running_listeners"),
        ),
        _SCALE_SET,
    ),
    "gha_started_jobs_total": _JOB,
    "gha_completed_jobs_total": _JOB | {"job_result"},
    "gha_job_startup_duration_seconds_bucket": _JOB | {"le"},
    "gha_job_startup_duration_seconds_count": _JOB,
    "gha_job_execution_duration_seconds_bucket": _JOB | {"job_result", "le"},
    "gha_job_execution_duration_seconds_sum": _JOB | {"job_result"},
    "gha_job_execution_duration_seconds_count": _JOB | {"job_result"},
}
"""ARC 0.14.2: the chart's `listenerMetrics`, cmd/ghalistener/metrics and controllers/actions.github.com/metrics (read
2026-11-24). Durations are of no scale set: their series name the repository and the workflow of a job.
"""


@cache
def exported() -> Mapping[str, frozenset[str]]:
    """Return the labels of each metric, by its name."""
    return {
        **dict.fromkeys(dcgm_metrics(), GPU_LABELS),
        **KUBE_STATE_METRICS,
        **CUSTOM_RESOURCE_STATE,
        **ACTIONS_RUNNER_CONTROLLER,
    }
