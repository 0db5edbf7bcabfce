"""Metric of the job that a runner has, and expressions that give a pod's figures to its job.

kube-state-metrics reads it from ARC's EphemeralRunners. No other exporter names a job and the pod that has its GPU.
"""

from __future__ import annotations

from typing import Any, Final

PREFIX, _NAME = "paddock", "runner_job_info"
RUNNER_JOB: Final = f"{PREFIX}_{_NAME}"
"""1 for each runner that has a job. `repository` is `owner/name`; `runner` is the name of its pod."""

_LABELS: Final = {
    "repository": "jobRepositoryName",
    "job_workflow_ref": "jobWorkflowRef",
    "job_name": "jobDisplayName",
}
"""Labels from fields of an EphemeralRunner's status (actions.github.com_ephemeralrunners.yaml of ARC 0.14.2)."""
RUNNER_JOB_LABELS: Final = frozenset({"namespace", "runner", "scale_set", *_LABELS})
POD_LABELS: Final = frozenset({"namespace", "pod", "container"})
"""Labels of dcgm-exporter's metrics of a GPU that a pod has, where a scrape honours them."""

RUNNERS_RULES: Final = {
    "actions.github.com": ("ephemeralrunners",),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
}
"""Resources that kube-state-metrics lists and watches for it, by their API group; it looks for CRDs to find kinds."""


def state_configuration() -> dict[str, Any]:
    """Return the file for kube-state-metrics' `--custom-resource-state-config-file`.

    The labels of the job are relative to `status`: a runner without a job has no series
    (docs/metrics/extend/customresourcestate-metrics.md and registry_factory.go of 2.19.1, read 2026-11-25).
    """
    return {
        "kind": "CustomResourceStateMetrics",
        "spec": {
            "resources": [
                {
                    "groupVersionKind": {
                        "group": "actions.github.com",
                        "version": "v1alpha1",
                        "kind": "EphemeralRunner",
                    },
                    "metricNamePrefix": PREFIX,
                    "labelsFromPath": {
                        "namespace": ["metadata", "namespace"],
                        "runner": ["metadata", "name"],
                        "scale_set": ["metadata", "labels", "actions.github.com/scale-set-name"],
                    },
                    "metrics": [
                        {
                            "name": _NAME,
                            "help": "Job that a runner has.",
                            "each": {
                                "type": "Info",
                                "info": {
                                    "path": ["status"],
                                    "labelsFromPath": {label: [field] for label, field in _LABELS.items()},
                                },
                            },
                        }
                    ],
                }
            ]
        },
    }


def by_job(vector: str, *labels: str) -> str:
    """Return the sum of a vector of pods by labels of the job that each pod has.

    The vector has `namespace` and `pod`. A job in kubernetes mode has a pod of its own, `RUNNER-workflow`.
    """
    named = ", ".join(labels)
    runner = f'label_replace({vector}, "runner", "$1", "pod", "(.+?)(?:-workflow)?")'
    job = f"max by (namespace, runner, {named}) ({RUNNER_JOB})"
    return f"sum by ({named}) ({runner} * on(namespace, runner) group_left({named}) {job})"


def held(phases: str = "Running") -> str:
    """Return the GPUs that pods on nodes hold, by pod. `phases` is a pattern of the pod's phase."""
    # Two of kube-state-metrics, as in every rollout, would double the one side and break the match with the other.
    requests = 'kube_pod_container_resource_requests{resource="nvidia_com_gpu", node!=""}'
    of_pod = f"max by (namespace, pod, container, node) ({requests})"
    on_node = f'max by (namespace, pod) (kube_pod_status_phase{{phase=~"{phases}"}} == 1)'
    return f"sum by (namespace, pod, node) ({of_pod} * on(namespace, pod) group_left() {on_node})"


BUSY: Final = 'sum by (namespace, pod) (DCGM_FI_DEV_GPU_UTIL{pod!=""}) / 100'
"""GPUs' worth of work that DCGM sees, by the pod that holds them."""
SEEN: Final = 'count by (namespace, pod) (DCGM_FI_DEV_GPU_UTIL{pod!=""})'
"""GPUs of which DCGM says what they do, by pod."""
IDLE: Final = 'count by (namespace, pod) (max_over_time(DCGM_FI_DEV_GPU_UTIL{pod!=""}[5m]) == 0)'
"""GPUs that did nothing for five minutes, by the pod that holds them."""
