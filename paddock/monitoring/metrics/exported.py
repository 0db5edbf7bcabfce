"""Labels of every metric that rules and dashboards may read, by the exporter that publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from paddock.labels import POOL
from paddock.monitoring.metrics import listener
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

NODE_LABELS: Mapping[str, str] = {
    "node.kubernetes.io/instance-type": "label_node_kubernetes_io_instance_type",
    POOL: "label_paddock_dev_pool",
}
"""Labels of nodes that kube-state-metrics must be told to export (`--metric-labels-allowlist`), as Prometheus has
them."""

KUBE_STATE_METRICS: Mapping[str, frozenset[str]] = {
    "kube_node_status_capacity": _RESOURCE,
    "kube_node_status_allocatable": _RESOURCE,
    "kube_node_labels": frozenset({"node", *NODE_LABELS.values()}),
    "kube_node_spec_taint": frozenset({"node", "key", "value", "effect"}),
    "kube_pod_created": _POD,
    "kube_pod_status_phase": _POD | {"phase"},
    "kube_pod_container_status_restarts_total": _POD | {"container"},
    "kube_pod_container_resource_requests": _POD | {"container", "node", "resource", "unit"},
}
"""Exported by kube-state-metrics 2.x, all but `NODE_LABELS` without a flag (docs/metrics/cluster/node-metrics.md and
docs/metrics/workload/pod-metrics.md; read 2026-11-24)."""

CUSTOM_RESOURCE_STATE: Mapping[str, frozenset[str]] = {RUNNER_JOB: RUNNER_JOB_LABELS}
"""Exported by kube-state-metrics with the configuration of `runner_jobs`."""

ACTIONS_RUNNER_CONTROLLER: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            *("gha_controller_pending_ephemeral_runners", "gha_controller_running_ephemeral_runners"),
            *("gha_controller_failed_ephemeral_runners", "gha_controller_running_listeners"),
        ),
        frozenset(listener.SCALE_SET),
    ),
    **listener.exported(),
}
"""ARC 0.14.2: controllers/actions.github.com/metrics (read 2026-11-24), and what `listener` gives the chart. Durations
are of no scale set: their series name the repository and the workflow of a job.
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
