"""Configuration of the fleet's own Prometheus: what it reads, how often, and where alerts go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddock.fleet import Fleet, arc
from paddock.fleet.model.monitoring import PROMETHEUS_NAMESPACE, Prometheus

RULES_FILE = "rules.yaml"
KUBE_STATE_METRICS_PORT = 8080

_POD = "__meta_kubernetes_pod"


def configuration(fleet: Fleet, settings: Prometheus, serving: str | None = None) -> dict[str, Any]:
    """Return the configuration. `serving` is the namespace of served models, whose metrics are read too."""
    jobs = [
        *exporters(fleet),
        *([_pods("serving", [serving])] if serving else []),
        _static("kube-state-metrics", f"kube-state-metrics.{PROMETHEUS_NAMESPACE}.svc:{KUBE_STATE_METRICS_PORT}"),
        _static("prometheus", "localhost:9090"),
    ]
    address = settings.alertmanager.removeprefix("http://") if settings.alertmanager else None
    return {
        "global": {"scrape_interval": "30s", "evaluation_interval": "30s"},
        "rule_files": [RULES_FILE],
        **({"alerting": {"alertmanagers": [{"static_configs": [{"targets": [address]}]}]}} if address else {}),
        "scrape_configs": jobs,
    }


def exporters(fleet: Fleet) -> list[dict[str, Any]]:
    """Return the jobs that read GPUs and runners."""
    return [
        _pods("dcgm", [fleet.monitoring.namespace], {f"{_POD}_label_app_kubernetes_io_name": "dcgm-exporter"}),
        _pods("actions-runner-controller", arc.systems(fleet)),
    ]


def _pods(job: str, namespaces: Sequence[str], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a job that reads the port `metrics` of the pods of namespaces."""
    chosen = {f"{_POD}_container_port_name": "metrics", **(labels or {})}
    keep = [{"action": "keep", "source_labels": [source], "regex": value} for source, value in chosen.items()]
    named = [
        {"source_labels": [f"{_POD}_name"], "target_label": "pod"},
        {"source_labels": [f"{_POD}_node_name"], "target_label": "node"},
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
    ]
    return {
        "job_name": job,
        # A metric's own namespace is that of the scale set, or of the pod on a GPU.
        "honor_labels": True,
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": list(namespaces)}}],
        "relabel_configs": [*keep, *named],
    }


def _static(job: str, target: str) -> dict[str, Any]:
    return {"job_name": job, "honor_labels": True, "static_configs": [{"targets": [target]}]}
