"""A Prometheus of the fleet's own with the kube-state-metrics that its rules read.

Objects of ours instead of a chart: those of prometheus-community read secrets and every pod's log by default, and come
with five other programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra import versions, workloads
from infra.cluster.control_plane import Cluster
from infra.component import Component
from infra.manifests import manifest
from infra.network.policies import (
    Egress,
    Ingress,
    anywhere,
    kubernetes_api,
    name_service,
    network_policy,
    pods_of,
    tcp,
)
from infra.serving import gateway
from infra.serving import pods as serving_pods
from paddock.fleet import Fleet, arc
from paddock.fleet.model.monitoring import PROMETHEUS_NAMESPACE
from paddock.fleet.model.monitoring import Prometheus as Settings
from paddock.fleet.sizing import system_nodes
from paddock.labels import CONFIGURATION
from paddock.monitoring import scraping
from paddock.monitoring.metrics import runner_jobs
from paddock.monitoring.metrics.kube_state_metrics import CUSTOM_RESOURCE_STATE, KUBE_STATE_METRICS, NODE_LABELS

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
        configuration = workloads.config_map(self, f"{name}-configuration", self._in("configuration"), files)
        of_state = {_STATE_FILE: workloads.as_yaml(runner_jobs.state_configuration())}
        state_configuration = workloads.config_map(self, f"{name}-state", self._in("kube-state-metrics"), of_state)
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
            spec=manifest(
                "prometheus-set",
                labels=_SERVER,
                annotations={CONFIGURATION: workloads.digest(files)},
                pod=server_pod(fleet, settings),
                storage_class=settings.storage_class,
                disk=f"{settings.disk}Mi",
            ),
            opts=self.child(depends_on=[configuration, *server, *cluster.ready]),
        )
        self.register_outputs({})

    def _in(self, name: str) -> k8s.meta.v1.ObjectMetaArgs:
        return workloads.within(self.namespace, name)

    def _service(self, name: str, selector: Mapping[str, str], port: int) -> None:
        k8s.core.v1.Service(
            f"{self.name}-{name}",
            metadata=self._in(name),
            spec={"selector": selector, "cluster_ip": "None", "ports": [{"name": "http", "port": port}]},
            # A headless service is there at once; waiting for its pods would wait for what comes after it.
            opts=self.child(),
        )

    def _isolate(self) -> None:
        """Prometheus reads its targets and the Kubernetes API; those in `clients` read it."""
        fleet, settings = self.fleet, self.settings
        api = kubernetes_api(self, fleet)
        here = pods_of(PROMETHEUS_NAMESPACE, _STATE)
        targets = [
            Egress(to=[pods_of(fleet.monitoring.namespace)], ports=tcp(_DCGM_PORT)),
            Egress(to=[*map(pods_of, arc.systems(fleet))], ports=tcp(_ARC_PORT)),
            Egress(to=[here], ports=tcp(scraping.KUBE_STATE_METRICS_PORT)),
        ]
        if fleet.served:
            for labels, port in ((serving_pods.RAY, serving_pods.METRICS_PORT), (gateway.GATEWAY, gateway.PORT)):
                targets.append(Egress(to=[pods_of(serving_pods.NAMESPACE, labels)], ports=tcp(port)))
        if settings.alertmanager:
            port = int(settings.alertmanager.rpartition(":")[2])
            targets.append(Egress(to=[pods_of(), anywhere()], ports=tcp(port)))
        clients = [Ingress(from_=[pods_of(name) for name in settings.clients], ports=tcp(PORT))]
        prometheus = Ingress(
            from_=[pods_of(PROMETHEUS_NAMESPACE, _SERVER)], ports=tcp(scraping.KUBE_STATE_METRICS_PORT)
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


def server_pod(fleet: Fleet, settings: Settings) -> dict[str, Any]:
    """Spec of Prometheus' pod."""
    image = f"quay.io/prometheus/prometheus:{versions.PROMETHEUS}@{versions.PROMETHEUS_DIGEST}"
    pod = manifest(
        "prometheus",
        image=fleet.mirror.image(image),
        time=f"{settings.days}d",
        # Blocks count, the log of what is newest does not: a full disk would stop it.
        size=f"{settings.disk * 8 // 10}MB",
        port=PORT,
        resources=system_nodes.PROMETHEUS.kubernetes(),
    )
    return {**workloads.unprivileged(fleet, "prometheus"), **pod}


def state_pod(fleet: Fleet) -> dict[str, Any]:
    """Spec of kube-state-metrics' pod: the metrics of nodes, pods and runners that rules and reports may read."""
    tag = f"{versions.KUBE_STATE_METRICS}@{versions.KUBE_STATE_METRICS_DIGEST}"
    pod = manifest(
        "kube-state-metrics",
        image=fleet.mirror.image(f"registry.k8s.io/kube-state-metrics/kube-state-metrics:{tag}"),
        port=scraping.KUBE_STATE_METRICS_PORT,
        metrics=",".join(sorted({*KUBE_STATE_METRICS, *CUSTOM_RESOURCE_STATE})),
        labels=",".join(NODE_LABELS),
        state_file=_STATE_FILE,
        resources=system_nodes.KUBE_STATE_METRICS.kubernetes(),
    )
    return {**workloads.unprivileged(fleet, "kube-state-metrics"), **pod}
