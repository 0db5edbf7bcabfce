"""Metrics, alarms and a dashboard in CloudWatch: OpenTelemetry's collector reads the exporters and sends there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra import versions, workloads
from infra.cluster.control_plane import Cluster
from infra.component import POD_IDENTITY, POD_IDENTITY_AGENT, Component, writes_logs
from infra.manifests import manifest
from infra.network.policies import (
    Egress,
    addresses_in,
    anywhere,
    kubernetes_api,
    name_service,
    network_policy,
    pods_of,
    tcp,
)
from paddock.fleet import Fleet, arc
from paddock.fleet.model.monitoring import CLOUDWATCH_NAMESPACE, CloudWatch
from paddock.fleet.sizing import system_nodes
from paddock.monitoring import cloudwatch
from paddock.monitoring.rules import Alarm

_COLLECTOR = "cloudwatch-collector"
_LABELS = {"app.kubernetes.io/name": _COLLECTOR}
_DCGM_PORT, _ARC_PORT = 9400, 8080


class CloudWatchMetrics(Component):
    """A log group that metrics are made from, the pod that alone may write there, and what watches the metrics."""

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        settings: CloudWatch,
        cluster: Cluster,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        self.fleet, self.settings = fleet, settings
        self.namespace = workloads.closed_namespace(self, CLOUDWATCH_NAMESPACE)
        self._isolate()
        group = self._group()
        account = workloads.lister(self, _COLLECTOR, self.namespace, ["pods"])
        identity = self._identity(group, cluster, account)
        files = {"config.yaml": workloads.as_yaml(cloudwatch.collector(fleet, _group_name(fleet)))}
        configuration = workloads.config_map(self, f"{name}-configuration", self._in("configuration"), files)
        k8s.apps.v1.Deployment(
            name,
            metadata=self._in(_COLLECTOR),
            spec=workloads.deployment(_LABELS, pod(fleet), workloads.digest(files)),
            # A pod that starts before its role is there never gets it.
            opts=self.child(depends_on=[configuration, identity, *account, *self.permissions, *cluster.ready]),
        )
        self._alarms()
        aws.cloudwatch.Dashboard(
            f"{name}-dashboard",
            dashboard_name=f"paddock-{fleet.name}",
            dashboard_body=json.dumps(cloudwatch.dashboard(fleet), ensure_ascii=False),
            opts=self.child(),
        )
        self.register_outputs({})

    def _in(self, name: str) -> k8s.meta.v1.ObjectMetaArgs:
        return workloads.within(self.namespace, name)

    def _group(self) -> aws.cloudwatch.LogGroup:
        purpose = f"Metrics of {self.fleet.name}"
        return self.log_group(self.name, purpose, self.fleet.region, self.settings.days, _group_name(self.fleet))

    def _identity(
        self, group: aws.cloudwatch.LogGroup, cluster: Cluster, account: list[pulumi.Resource]
    ) -> aws.eks.PodIdentityAssociation:
        """The right to write into that one group. CloudWatch makes the metrics of it: no right on metrics is needed."""
        role = self.role(self.name, POD_IDENTITY, inline=writes_logs(group))
        needs = [*account, *cluster.identity]
        return self.pod_identity(cluster.eks_name, self.namespace.metadata.name, _COLLECTOR, role, needs)

    def _isolate(self) -> None:
        """Nobody calls it; it reads the exporters, and calls the Kubernetes API, the agent of its role, and AWS."""
        https = Egress(to=[anywhere()], ports=tcp(443))
        network_policy(
            self,
            f"{self.name}-default",
            self._in("default"),
            ingress=[],
            egress=[
                name_service(),
                *kubernetes_api(self, self.fleet),
                addresses_in([POD_IDENTITY_AGENT], [80]),
                https,
                Egress(to=[pods_of(self.fleet.monitoring.namespace)], ports=tcp(_DCGM_PORT)),
                Egress(to=[*map(pods_of, arc.systems(self.fleet))], ports=tcp(_ARC_PORT)),
            ],
        )

    def _alarms(self) -> None:
        topics = [self.settings.topic] if self.settings.topic else []
        for alert, alarm, scale_set in cloudwatch.alarms(self.fleet):
            name = f"{alert.name}-{scale_set}" if scale_set else alert.name
            aws.cloudwatch.MetricAlarm(
                f"{self.name}-{name}",
                name=f"paddock-{self.fleet.name}-{name}",
                alarm_description=alert.runbook,
                comparison_operator=alarm.comparison,
                threshold=alarm.threshold,
                evaluation_periods=alarm.periods,
                treat_missing_data=alarm.missing,
                alarm_actions=topics,
                ok_actions=topics,
                metric_queries=list(_queries(self.fleet, alert.name, alarm, scale_set)),
                opts=self.child(),
            )


def _queries(
    fleet: Fleet, label: str, alarm: Alarm, scale_set: str
) -> Iterator[aws.cloudwatch.MetricAlarmMetricQueryArgs]:
    """Yield the metric of an alarm, or two and their difference."""
    dimensions = {cloudwatch.FLEET: fleet.name, **({cloudwatch.SCALE_SET: scale_set} if scale_set else {})}
    for index, name in enumerate([alarm.metric, alarm.less] if alarm.less else [alarm.metric]):
        yield aws.cloudwatch.MetricAlarmMetricQueryArgs(
            id=f"m{index}",
            metric=aws.cloudwatch.MetricAlarmMetricQueryMetricArgs(
                namespace=cloudwatch.METRICS_NAMESPACE,
                metric_name=name,
                dimensions=dimensions,
                stat=alarm.statistic,
                period=alarm.minutes * 60,
            ),
            return_data=not alarm.less,
        )
    if alarm.less:
        yield aws.cloudwatch.MetricAlarmMetricQueryArgs(
            id="waiting", expression="m0 - m1", label=label, return_data=True
        )


def pod(fleet: Fleet) -> dict[str, Any]:
    """Spec of the collector's pod."""
    tag = f"{versions.OPENTELEMETRY_COLLECTOR}@{versions.OPENTELEMETRY_COLLECTOR_DIGEST}"
    pod = manifest(
        "collector",
        image=fleet.mirror.image(f"docker.io/otel/opentelemetry-collector-contrib:{tag}"),
        resources=system_nodes.COLLECTOR.kubernetes(),
        port=cloudwatch.HEALTH_PORT,
    )
    return {**workloads.unprivileged(fleet, _COLLECTOR), **pod}


def _group_name(fleet: Fleet) -> str:
    return f"/paddock/{fleet.name}/metrics"
