"""A Prometheus of the fleet's own with the kube-state-metrics that its rules read.

Objects of ours instead of a chart: those of prometheus-community read secrets and every pod's log by default, and come
with five other programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra import versions
from infra.arc.runner_pod import CONTROLLER_NAMESPACE
from infra.cluster.control_plane import Cluster
from infra.component import Component
from infra.monitoring import workloads
from infra.network.policies import (
    Egress,
    Ingress,
    anywhere,
    kubernetes_api,
    name_service,
    network_policy,
    pods_of,
)
from infra.serving import pods as serving_pods
from paddock.fleet import Fleet
from paddock.fleet.model.monitoring import PROMETHEUS_NAMESPACE
from paddock.fleet.model.monitoring import Prometheus as Settings
from paddock.fleet.sizing import system_nodes
from paddock.monitoring import scraping
from paddock.monitoring.metrics import runner_jobs
from paddock.monitoring.metrics.exported import CUSTOM_RESOURCE_STATE, KUBE_STATE_METRICS

PORT = 9090
_DCGM_PORT, _ARC_PORT = 9400, 8080
_SERVER = {"app.kubernetes.io/name": "prometheus"}
_STATE = {"app.kubernetes.io/name": "kube-state-metrics"}
_STATE_FILE = "runner-jobs.yaml"


class Prometheus(Component):
    """A closed namespace: who may query it is named, and it reads nothing but what the rules need."""

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        settings: Settings,
        rules: Mapping[str, Any],
        cluster: Cluster,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        self.fleet, self.settings = fleet, settings
        self.namespace = workloads.closed_namespace(self, PROMETHEUS_NAMESPACE)
        self._isolate()
        files = {
            "prometheus.yaml": workloads.as_yaml(
                scraping.configuration(fleet, settings, serving_pods.NAMESPACE if fleet.served else None)
            ),
            scraping.RULES_FILE: workloads.as_yaml(rules),
        }
        configuration = k8s.core.v1.ConfigMap(
            f"{name}-configuration", metadata=self._in("configuration"), data=files, opts=self.child()
        )
        of_state = {_STATE_FILE: workloads.as_yaml(runner_jobs.state_configuration())}
        state_configuration = k8s.core.v1.ConfigMap(
            f"{name}-state", metadata=self._in("kube-state-metrics"), data=of_state, opts=self.child()
        )
        state = workloads.lister(
            self, "kube-state-metrics", self.namespace, ["nodes", "pods"], runner_jobs.RUNNERS_RULES
        )
        server = workloads.lister(self, "prometheus", self.namespace, ["pods"])
        self._service("kube-state-metrics", _STATE, scraping.KUBE_STATE_METRICS_PORT)
        self._service("prometheus", _SERVER, PORT)
        k8s.apps.v1.Deployment(
            f"{name}-kube-state-metrics",
            metadata=self._in("kube-state-metrics"),
            spec=workloads.deployment(_STATE, state_pod(fleet), workloads.digest(of_state)),
            opts=self.child(depends_on=[state_configuration, *state, *cluster.ready]),
        )
        k8s.apps.v1.StatefulSet(
            name,
            metadata=self._in("prometheus"),
            spec=_stateful_set(server_pod(fleet, settings), settings, workloads.digest(files)),
            opts=self.child(depends_on=[configuration, *server, *cluster.ready]),
        )
        self.register_outputs({})

    def _in(self, name: str) -> k8s.meta.v1.ObjectMetaArgs:
        return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=self.namespace.metadata.name)

    def _service(self, name: str, selector: Mapping[str, str], port: int) -> None:
        k8s.core.v1.Service(
            f"{self.name}-{name}",
            metadata=self._in(name),
            spec=k8s.core.v1.ServiceSpecArgs(
                selector=selector,
                cluster_ip="None",
                ports=[k8s.core.v1.ServicePortArgs(name="http", port=port)],
            ),
            # A headless service is there at once; waiting for its pods would wait for what comes after it.
            opts=self.child(),
        )

    def _isolate(self) -> None:
        """Prometheus reads its targets and the Kubernetes API; those in `clients` read it."""
        fleet, settings = self.fleet, self.settings
        api = kubernetes_api(self, fleet)
        here = pods_of(PROMETHEUS_NAMESPACE, _STATE)
        targets = [
            Egress(to=[pods_of(fleet.monitoring.namespace)], ports=workloads.tcp(_DCGM_PORT)),
            Egress(to=[pods_of(CONTROLLER_NAMESPACE)], ports=workloads.tcp(_ARC_PORT)),
            Egress(to=[here], ports=workloads.tcp(scraping.KUBE_STATE_METRICS_PORT)),
        ]
        if fleet.served:
            targets.append(Egress(to=[pods_of(serving_pods.NAMESPACE)], ports=workloads.tcp(serving_pods.METRICS_PORT)))
        if settings.alertmanager:
            port = int(settings.alertmanager.rpartition(":")[2])
            targets.append(Egress(to=[pods_of(), anywhere()], ports=workloads.tcp(port)))
        clients = [Ingress(from_=[pods_of(name) for name in settings.clients], ports=workloads.tcp(PORT))]
        prometheus = Ingress(
            from_=[pods_of(PROMETHEUS_NAMESPACE, _SERVER)], ports=workloads.tcp(scraping.KUBE_STATE_METRICS_PORT)
        )
        self._policy("default", None, [], [])
        self._policy("prometheus", _SERVER, clients if settings.clients else [], [name_service(), *api, *targets])
        self._policy("kube-state-metrics", _STATE, [prometheus], [name_service(), *api])

    def _policy(
        self,
        name: str,
        selected: Mapping[str, str] | None,
        ingress: list[Ingress],
        egress: list[pulumi.Input[Egress]],
    ) -> None:
        network_policy(self, f"{self.name}-{name}", self._in(name), pods=selected, ingress=ingress, egress=egress)


def _stateful_set(pod: Any, settings: Settings, digest: str) -> Any:
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": settings.storage_class,
        "resources": {"requests": {"storage": f"{settings.disk}Mi"}},
    }
    # Prometheus reads its files once, at the start.
    metadata = {"labels": _SERVER, "annotations": {"paddock.dev/configuration": digest}}
    return {
        "replicas": 1,
        "serviceName": "prometheus",
        "selector": {"matchLabels": _SERVER},
        "template": {"metadata": metadata, "spec": pod},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    }


def server_pod(fleet: Fleet, settings: Settings) -> dict[str, Any]:
    """Spec of Prometheus' pod."""
    image = f"quay.io/prometheus/prometheus:{versions.PROMETHEUS}@{versions.PROMETHEUS_DIGEST}"
    probe = {"port": PORT, "scheme": "HTTP"}
    return {
        **workloads.unprivileged(fleet, "prometheus"),
        "terminationGracePeriodSeconds": 120,
        "containers": [
            {
                "name": "prometheus",
                "image": fleet.mirror.image(image),
                "args": [
                    "--config.file=/etc/prometheus/prometheus.yaml",
                    "--storage.tsdb.path=/prometheus",
                    f"--storage.tsdb.retention.time={settings.days}d",
                    # Blocks count, the log of what is newest does not: a full disk would stop it.
                    f"--storage.tsdb.retention.size={settings.disk * 8 // 10}MB",
                    f"--web.listen-address=:{PORT}",
                ],
                "ports": [{"name": "http", "containerPort": PORT}],
                "resources": system_nodes.PROMETHEUS.kubernetes(),
                "securityContext": workloads.CONTAINER,
                "readinessProbe": {"httpGet": {"path": "/-/ready", **probe}, "periodSeconds": 10},
                # After a crash it reads its log anew, which takes minutes.
                "startupProbe": {
                    "httpGet": {"path": "/-/ready", **probe},
                    "periodSeconds": 10,
                    "failureThreshold": 90,
                },
                "livenessProbe": {
                    "httpGet": {"path": "/-/healthy", **probe},
                    "periodSeconds": 15,
                    "failureThreshold": 8,
                },
                "volumeMounts": [
                    {"name": "configuration", "mountPath": "/etc/prometheus", "readOnly": True},
                    {"name": "data", "mountPath": "/prometheus"},
                ],
            }
        ],
        "volumes": [{"name": "configuration", "configMap": {"name": "configuration"}}],
    }


def state_pod(fleet: Fleet) -> dict[str, Any]:
    """Spec of kube-state-metrics' pod: the metrics of nodes, pods and runners that rules and reports may read."""
    tag = f"{versions.KUBE_STATE_METRICS}@{versions.KUBE_STATE_METRICS_DIGEST}"
    image = f"registry.k8s.io/kube-state-metrics/kube-state-metrics:{tag}"
    port = scraping.KUBE_STATE_METRICS_PORT
    return {
        **workloads.unprivileged(fleet, "kube-state-metrics"),
        "containers": [
            {
                "name": "kube-state-metrics",
                "image": fleet.mirror.image(image),
                "args": [
                    f"--port={port}",
                    "--telemetry-port=8081",
                    "--resources=nodes,pods",
                    f"--metric-allowlist={','.join(sorted({*KUBE_STATE_METRICS, *CUSTOM_RESOURCE_STATE}))}",
                    f"--custom-resource-state-config-file=/etc/kube-state-metrics/{_STATE_FILE}",
                ],
                "ports": [{"name": "http", "containerPort": port}],
                "resources": system_nodes.KUBE_STATE_METRICS.kubernetes(),
                "securityContext": workloads.CONTAINER,
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 10},
                "livenessProbe": {"httpGet": {"path": "/livez", "port": port}, "periodSeconds": 15},
                "volumeMounts": [{"name": "configuration", "mountPath": "/etc/kube-state-metrics", "readOnly": True}],
            }
        ],
        "volumes": [{"name": "configuration", "configMap": {"name": "kube-state-metrics"}}],
    }
