"""GPU metrics by DCGM, and alerts on what they say."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml

from infra import versions, workloads
from infra.cluster.addons import DCGM_ENGINE
from infra.cluster.control_plane import Cluster
from infra.component import Component
from infra.helm import charts
from infra.helm.releases import release
from infra.manifests import manifest
from infra.monitoring.prometheus import Prometheus
from infra.network.policies import Egress, Ingress, anywhere, network_policy, pods_of
from paddock.fleet import Fleet, NewCluster, arc, nodes
from paddock.fleet.sizing import daemonsets
from paddock.labels import METRICS
from paddock.monitoring.alerts import groups
from paddock.monitoring.metrics.dcgm import DCGM_METRICS
from paddock.monitoring.rules import document


class Monitoring(Component):
    """The exporter on every GPU node, and the rules in the form that the fleet asks for."""

    def __init__(self, name: str, fleet: Fleet, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        settings = fleet.monitoring
        # DCGM reads hardware counters: root and SYS_ADMIN, which the stricter levels refuse.
        why = "DCGM reads the GPUs' hardware counters as root with SYS_ADMIN"
        namespace = workloads.privileged_namespace(self, settings.namespace, why)
        self._isolate(namespace)
        release(
            self,
            name,
            charts.DCGM_EXPORTER,
            fleet.mirror,
            namespace=namespace.metadata.name,
            values=values(fleet),
            depends_on=cluster.ready,
        )
        where = workloads.within(namespace, "gpu-alerts")
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
            text = yaml.safe_dump(rules, sort_keys=False)
            workloads.config_map(self, f"{name}-alerts", where, {"gpu-alerts.yaml": text})
        if settings.dashboards:
            self._dashboards(namespace)
        if settings.service_monitor:
            # Alerts on jobs and scale sets read what the controller and its listeners export.
            k8s.apiextensions.CustomResource(
                f"{name}-arc",
                api_version="monitoring.coreos.com/v1",
                kind="PodMonitor",
                metadata=workloads.within(namespace, "arc"),
                spec={
                    "namespaceSelector": {"matchNames": list(arc.systems(fleet))},
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
            metadata = workloads.within(namespace, name, labels=grafana.LABEL)
            workloads.config_map(self, f"{self.name}-{name}", metadata, {file: text})

    def _isolate(self, namespace: k8s.core.v1.Namespace) -> None:
        """Pods of the cluster may scrape, and be scraped from here; nobody reaches IMDS, nor comes from outside."""
        everyone_here = pods_of()
        network_policy(
            self,
            f"{self.name}-default",
            workloads.within(namespace, "default"),
            ingress=[Ingress(from_=[everyone_here])],
            egress=[Egress(to=[everyone_here, anywhere()])],
        )


def values(fleet: Fleet) -> dict[str, Any]:
    """Values of the chart."""
    values: dict[str, Any] = manifest(
        "dcgm-exporter",
        metrics=DCGM_METRICS,
        annotations={METRICS: workloads.digest({"": DCGM_METRICS})},
        toleration=nodes.TAINT.toleration(),
        service_monitor=fleet.monitoring.service_monitor,
        resources=daemonsets.DCGM_EXPORTER.kubernetes(),
    )
    if isinstance(fleet.cluster, NewCluster) or fleet.monitoring.host_engine:
        # Two DCGM engines on a node are unsupported and may deadlock the driver (NVIDIA/DCGM issue 108), so the
        # exporter asks the node monitoring agent's: `dcgm-server`, on port 5555 of the node (agent 1.7.0, read
        # 2026-11-23).
        values["arguments"] += ["-r", f"$(HOST_IP):{DCGM_ENGINE}"]
        values["extraEnv"].append({"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}})
    return values
