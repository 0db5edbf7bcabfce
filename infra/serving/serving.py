"""Serving of models on the fleet's GPUs: a namespace of its own, closed, with a gateway and a RayService in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra import workloads
from infra.cluster.control_plane import Cluster
from infra.component import Component
from infra.network.policies import (
    Egress,
    Ingress,
    addresses_in,
    kubernetes_api,
    name_service,
    network_policy,
    pods_of,
    tcp,
)
from infra.network.vpc import ranges
from infra.serving import gateway, pods, ray_service
from infra.serving.operator import OPERATOR_NAMESPACE, RayOperator
from paddock.fleet import Fleet, Serving, nodes
from paddock.fleet.model.network import PRIVATE_RANGES
from paddock.labels import MODEL


class ModelServing(Component):
    """The operator, one RayService for all models, and the gateway, which alone reaches it."""

    def __init__(
        self, name: str, fleet: Fleet, serving: Serving, cluster: Cluster, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, opts)
        self.fleet, self.serving = fleet, serving
        self.namespace = workloads.closed_namespace(self, pods.NAMESPACE)
        operator = RayOperator(f"{name}-operator", fleet, self.namespace, cluster.ready, opts=self.child())
        self._isolate()
        self._limits()
        secrets = self._secrets()
        self._gateway(secrets)
        k8s.apiextensions.CustomResource(
            name,
            api_version="ray.io/v1",
            kind="RayService",
            metadata=self._in(name),
            spec=ray_service.spec(fleet, serving),
            opts=self.child(depends_on=[operator.release, *secrets, self._head_account()]),
        )
        self.register_outputs({})

    def _in(self, name: str, **more: Any) -> k8s.meta.v1.ObjectMetaArgs:
        return workloads.within(self.namespace, name, **more)

    def _secrets(self) -> list[pulumi.Resource]:
        """API keys, Ray's token and the password of Redis, those that nobody else keeps in the namespace."""
        serving, redis = self.serving, self.serving.redis
        secrets = [
            (pods.API_KEYS, "keys", serving.api_keys, "servingKeys"),
            (pods.RAY_TOKEN, "auth_token", serving.ray_token, "rayToken"),
            *([(pods.REDIS_PASSWORD, "password", redis.password, "redisPassword")] if redis else []),
        ]
        return [
            k8s.core.v1.Secret(
                f"{self.name}-{name}",
                metadata=self._in(name),
                string_data={key: self.secret(source, config)},
                opts=self.child(),
            )
            for name, key, source, config in secrets
            if not source.startswith("kubernetes:")
        ]

    def _head_account(self) -> k8s.core.v1.ServiceAccount:
        """Account that KubeRay gives the right to scale this cluster; only the head's pod takes its token."""
        return k8s.core.v1.ServiceAccount(
            f"{self.name}-head",
            metadata=self._in(pods.HEAD_ACCOUNT),
            automount_service_account_token=False,
            opts=self.child(),
        )

    def _gateway(self, secrets: list[pulumi.Resource]) -> None:
        """Deployment, service, configuration and budget of the gateway."""
        name, replicas = gateway.NAME, self.serving.gateway.replicas
        files = gateway.configuration(self.serving)
        configuration = workloads.config_map(self, f"{self.name}-gateway", self._in(name), files)
        keys = ray_service.secret_name(self.serving.api_keys, pods.API_KEYS)
        # A secret of others comes after the namespace, so `up` must not wait for pods that wait for it.
        unawaited = {"pulumi.com/skipAwait": "true"} if self.serving.api_keys.startswith("kubernetes:") else None
        k8s.apps.v1.Deployment(
            f"{self.name}-gateway",
            metadata=self._in(name, labels=gateway.GATEWAY, annotations=unawaited),
            spec=gateway.deployment(self.fleet, self.serving, keys),
            opts=self.child(depends_on=[configuration, *secrets]),
        )
        k8s.core.v1.Service(
            f"{self.name}-gateway",
            metadata=self._in(name, annotations=unawaited),
            spec={
                "selector": gateway.GATEWAY,
                "ports": [{"name": "http", "port": gateway.PORT, "target_port": gateway.PORT}],
            },
            opts=self.child(),
        )
        if replicas > 1:
            k8s.policy.v1.PodDisruptionBudget(
                f"{self.name}-gateway",
                metadata=self._in(name),
                spec={"max_unavailable": 1, "selector": {"match_labels": gateway.GATEWAY}},
                opts=self.child(),
            )

    def _isolate(self) -> None:
        """Pods of Ray talk to each other; the operator and the gateway talk to them, and clients to the gateway."""
        ray, front = pods_of(pods.NAMESPACE, pods.RAY), pods_of(pods.NAMESPACE, gateway.GATEWAY)
        serving, monitoring, redis = self.serving, self.fleet.monitoring, self.serving.redis
        self._policy("default", ingress=[], egress=[name_service()])
        # Every port: Ray chooses those of its workers.
        self._policy(
            "ray",
            pods.RAY,
            ingress=[Ingress(from_=[ray]), Ingress(from_=[front], ports=tcp(pods.HTTP_PORT))],
            egress=[Egress(to=[ray])],
        )
        self._policy("gateway", gateway.GATEWAY, egress=[Egress(to=[ray], ports=tcp(pods.HTTP_PORT))])
        self._policy(
            "head",
            pods.HEAD,
            ingress=[
                Ingress(from_=[pods_of(OPERATOR_NAMESPACE)], ports=tcp(pods.DASHBOARD_PORT, pods.HTTP_PORT)),
            ],
            egress=kubernetes_api(self, self.fleet),
        )
        if serving.clients:
            clients = [pods_of(namespace) for namespace in serving.clients]
            self._policy("clients", gateway.GATEWAY, ingress=[Ingress(from_=clients, ports=tcp(gateway.PORT))])
        if monitoring.enabled:
            scrapers = [pods_of(namespace) for namespace in monitoring.scrapers]
            scrape = Ingress(from_=scrapers, ports=tcp(pods.METRICS_PORT))
            self._policy("metrics", pods.RAY, ingress=[scrape])
            requests = Ingress(from_=scrapers, ports=tcp(gateway.PORT))
            self._policy("gateway-metrics", gateway.GATEWAY, ingress=[requests])
        if redis:
            port = redis.port
            # Of a cluster that is reached by a kubeconfig nobody here knows the network.
            networks = ranges(self, self.fleet) if self.fleet.makes_network else PRIVATE_RANGES
            in_vpc = pulumi.Output.from_input(networks).apply(lambda cidrs: addresses_in(list(cidrs), [port]))
            self._policy("redis", pods.HEAD, egress=[in_vpc])

    def _policy(
        self,
        name: str,
        selected: Mapping[str, str] | None = None,
        *,
        ingress: list[Ingress] | None = None,
        egress: list[pulumi.Input[Egress]] | None = None,
    ) -> None:
        network_policy(self, f"{self.name}-{name}", self._in(name), pods=selected, ingress=ingress, egress=egress)

    def _limits(self) -> None:
        """A quota from the largest numbers of replicas, and budgets that keep all but one of the lasting replicas."""
        models = self.serving.models.values()
        clusters = 2 if self.serving.upgrade == "new-cluster" else 1
        gpus = clusters * sum(model.replicas.max * model.tensor_parallel for model in models)
        count = clusters * (1 + sum(model.replicas.max for model in models)) + self.serving.gateway.replicas
        k8s.core.v1.ResourceQuota(
            f"{self.name}-quota",
            metadata=self._in("replicas"),
            # A few pods more, for those that are going while their successors come.
            spec={"hard": {f"requests.{nodes.GPU}": str(gpus), "pods": str(count + max(5, count // 5))}},
            opts=self.child(),
        )
        for model in models:
            # Pods without a scale subresource take a budget as a number of pods alone. One for a single
            # pod would stop every update of its node.
            if model.replicas.min > 1:
                k8s.policy.v1.PodDisruptionBudget(
                    f"{self.name}-{model.name}",
                    metadata=self._in(model.name),
                    spec={
                        "min_available": model.replicas.min - 1,
                        "selector": {"match_labels": {MODEL: model.name}},
                    },
                    opts=self.child(),
                )
