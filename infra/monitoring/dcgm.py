"""GPU metrics by DCGM, and alerts on what they say."""

from __future__ import annotations

import hashlib
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml

from infra import versions
from infra.arc.runner_pod import CONTROLLER_NAMESPACE
from infra.cluster.control_plane import Cluster
from infra.component import PRIVILEGED_BECAUSE, Component
from infra.helm import charts
from infra.helm.releases import release
from infra.monitoring.prometheus import Prometheus
from infra.network.policies import Egress, Ingress, anywhere, network_policy, pods_of
from paddock.fleet import Fleet, NewCluster, nodes
from paddock.fleet.sizing import daemonsets
from paddock.monitoring.metrics.dcgm import DCGM_METRICS
from paddock.monitoring.rules.fleet_rules import document, groups


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
        rules = document(groups(fleet, versions.ACTIONS_RUNNER))
        if settings.prometheus:
            Prometheus("prometheus", fleet, settings.prometheus, rules, cluster, opts=self.child())
        elif settings.rules == "prometheus-rule":
            k8s.apiextensions.CustomResource(
                f"{name}-alerts",
                api_version="monitoring.coreos.com/v1",
                kind="PrometheusRule",
                metadata=where,
                spec=rules,
                opts=self.child(),
            )
        else:
            k8s.core.v1.ConfigMap(
                f"{name}-alerts",
                metadata=where,
                data={"gpu-alerts.yaml": yaml.safe_dump(rules, sort_keys=False)},
                opts=self.child(),
            )
        if settings.dashboards:
            self._dashboards(namespace)
        if settings.service_monitor:
            # Alerts on jobs and scale sets read what the controller and its listeners export.
            k8s.apiextensions.CustomResource(
                f"{name}-arc",
                api_version="monitoring.coreos.com/v1",
                kind="PodMonitor",
                metadata=k8s.meta.v1.ObjectMetaArgs(name="arc", namespace=namespace.metadata.name),
                spec={
                    "namespaceSelector": {"matchNames": [CONTROLLER_NAMESPACE]},
                    "selector": {},
                    # Without it the namespace of a scale set would give way to that of its listener.
                    "podMetricsEndpoints": [{"port": "metrics", "honorLabels": True}],
                },
                opts=self.child(),
            )
        self.register_outputs({})

    def _dashboards(self, namespace: k8s.core.v1.Namespace) -> None:
        from paddock.monitoring.dashboards import grafana

        for file, text in grafana.files().items():
            name = file.removesuffix(".json")
            k8s.core.v1.ConfigMap(
                f"{self.name}-{name}",
                metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace=namespace.metadata.name, labels=grafana.LABEL),
                data={file: text},
                opts=self.child(),
            )

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
    arguments = ["-f", "/etc/dcgm-exporter/default-counters.csv"]
    # Go takes a thread for each of the host's processors otherwise, and their memory with them.
    environment: list[dict[str, Any]] = [{"name": "GOMAXPROCS", "value": "2"}]
    if isinstance(fleet.cluster, NewCluster) or fleet.monitoring.host_engine:
        # Two DCGM engines on a node are unsupported and may deadlock the driver (NVIDIA/DCGM issue 108), so the
        # exporter asks the node monitoring agent's: `dcgm-server`, on port 5555 of the node (agent 1.7.0, read
        # 2026-11-23).
        arguments += ["-r", "$(HOST_IP):5555"]
        environment.append({"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}})
    return {
        "arguments": arguments,
        "customMetrics": DCGM_METRICS,
        # The list is read once, at the start.
        "podAnnotations": {"paddock.dev/metrics": hashlib.sha256(DCGM_METRICS.encode()).hexdigest()[:16]},
        "tolerations": [nodes.TAINT.toleration()],
        "nodeSelector": {f"{nodes.GPU}.present": "true"},
        # With its own labels a metric names the pod that has the GPU, and not the exporter's.
        "serviceMonitor": {"enabled": fleet.monitoring.service_monitor, "honorLabels": True},
        "resources": daemonsets.DCGM_EXPORTER.kubernetes(),
        # Which pod a GPU serves: read from the kubelet's socket below kubeletPath.
        "kubernetes": {"enablePodLabels": True, "enablePodUID": True, "rbac": {"create": True}},
        "extraEnv": environment,
    }
