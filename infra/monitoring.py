"""GPU metrics by DCGM, and alerts on what they say."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml

from infra import charts
from infra.cluster import Cluster
from infra.component import PRIVILEGED_BECAUSE, Component
from infra.helm import release
from infra.network_policy import Egress, Ingress, anywhere, network_policy, pods_of
from paddock.fleet import Fleet, nodes
from paddock.fleet.sizing import daemonsets


class Monitoring(Component):
    """The exporter on every GPU node, and the rules in the form that the fleet asks for."""

    def __init__(self, name: str, fleet: Fleet, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        settings = fleet.monitoring
        # DCGM reads hardware counters: root and SYS_ADMIN, which the stricter levels refuse.
        namespace = k8s.core.v1.Namespace(
            name,
            metadata={
                "name": settings.namespace,
                "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
                "annotations": {PRIVILEGED_BECAUSE: "DCGM reads the GPUs' hardware counters as root with SYS_ADMIN"},
            },
            opts=self.child(),
        )
        self._isolate(namespace)
        release(
            self,
            name,
            charts.DCGM_EXPORTER,
            fleet.mirror,
            release_name="dcgm-exporter",
            namespace=namespace.metadata.name,
            values=values(fleet),
            depends_on=cluster.ready,
        )
        where = k8s.meta.v1.ObjectMetaArgs(name="gpu-alerts", namespace=namespace.metadata.name)
        if settings.rules == "prometheus-rule":
            k8s.apiextensions.CustomResource(
                f"{name}-alerts",
                api_version="monitoring.coreos.com/v1",
                kind="PrometheusRule",
                metadata=where,
                spec=RULES,
                opts=self.child(),
            )
        else:
            k8s.core.v1.ConfigMap(
                f"{name}-alerts",
                metadata=where,
                data={"gpu-alerts.yaml": yaml.safe_dump(RULES, sort_keys=False)},
                opts=self.child(),
            )
        self.register_outputs({})

    def _isolate(self, namespace: k8s.core.v1.Namespace) -> None:
        """Pods of the cluster may scrape, and be scraped from here; nobody reaches IMDS, nor comes from outside."""
        everyone_here = pods_of()
        network_policy(
            self,
            f"{self.name}-default",
            k8s.meta.v1.ObjectMetaArgs(name="default", namespace=namespace.metadata.name),
            ingress=[Ingress(from_=[everyone_here])],
            egress=[Egress(to=[everyone_here, anywhere()])],
        )


def values(fleet: Fleet) -> dict[str, Any]:
    """Values of the chart. Its own tolerations keep it off every GPU node."""
    return {
        "tolerations": [nodes.TAINT.toleration()],
        "nodeSelector": {f"{nodes.GPU}.present": "true"},
        "serviceMonitor": {"enabled": fleet.monitoring.service_monitor},
        "resources": daemonsets.DCGM_EXPORTER.kubernetes(),
        # Which pod a GPU serves: read from the kubelet's socket below kubeletPath.
        "kubernetes": {"enablePodLabels": True, "enablePodUID": True, "rbac": {"create": True}},
        # Go takes a thread for each of the host's processors otherwise, and their memory with them.
        "extraEnv": [{"name": "GOMAXPROCS", "value": "2"}],
    }


def _alert(name: str, expression: str, minutes: int, severity: str, summary: str, action: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": f"{minutes}m",
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "action": action},
    }


_GPU = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"

RULES: dict[str, Any] = {
    "groups": [
        {
            "name": "gpu-health",
            "rules": [
                _alert("GpuUncorrectableEccError", "increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[5m]) > 0", 1, "critical",
                       f"{_GPU}: uncorrectable memory error", "reset the GPU; replace the node if it returns"),
                _alert("GpuRowRemapFailure", "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0", 1, "critical",
                       f"{_GPU}: a failed memory row could not be remapped", "replace the node"),
                _alert("GpuXidError", "DCGM_FI_DEV_XID_ERRORS > 0 and changes(DCGM_FI_DEV_XID_ERRORS[10m]) > 0", 1,
                       "warning", f"{_GPU}: Xid {{{{ $value }}}}", "look the Xid up in NVIDIA's Xid catalogue"),
                _alert("GpuTooHot", "DCGM_FI_DEV_GPU_TEMP > 90", 5, "warning",
                       f"{_GPU}: {{{{ $value }}}} degrees Celsius", "replace the node if it stays"),
                _alert("GpuMetricsMissing", 'absent(DCGM_FI_DEV_GPU_TEMP) and on() kube_node_labels{label_role="gpu"}',
                       15, "warning", "GPU nodes without GPU metrics", "check the dcgm-exporter pods"),
            ],
        },
        {
            "name": "gpu-capacity",
            "rules": [
                _alert("GpuNotAllocatable", 'kube_node_status_capacity{resource="nvidia_com_gpu"} - on(node) '
                       'kube_node_status_allocatable{resource="nvidia_com_gpu"} > 0', 10, "warning",
                       "{{ $labels.node }} has GPUs that no pod can get", "check the device plugin on the node"),
                _alert("GpuJobsWaiting", "gha_assigned_jobs - gha_running_jobs > 0", 20, "warning",
                       "jobs wait for runners of {{ $labels.name }}", "kubectl describe pods -n arc-runners"),
                _alert("ScaleSetFailing", "gha_controller_failed_ephemeral_runners > 0", 10, "warning",
                       "runners of {{ $labels.name }} fail to start",
                       "kubectl describe ephemeralrunners -n arc-runners"),
            ],
        },
    ]
}  # fmt: skip
"""Prometheus rules over DCGM's, ARC's and kube-state-metrics' own metric names."""
