"""Metrics that kube-state-metrics is told to export."""

from __future__ import annotations

from collections.abc import Mapping

from paddock.labels import POOL
from paddock.monitoring.metrics.runner_jobs import RUNNER_JOB, RUNNER_JOB_LABELS

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
