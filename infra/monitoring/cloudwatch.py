"""Metrics, alarms and a dashboard in CloudWatch: OpenTelemetry's collector reads the exporters and sends there."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra import versions
from infra.arc.runner_pod import CONTROLLER_NAMESPACE
from infra.cluster.control_plane import Cluster
from infra.component import POD_IDENTITY, POD_IDENTITY_AGENT, Component, allow, policy
from infra.monitoring import workloads
from infra.network.policies import (
    Egress,
    addresses_in,
    anywhere,
    kubernetes_api,
    name_service,
    network_policy,
    pods_of,
)
from paddock.fleet import Fleet
from paddock.fleet.model.monitoring import CLOUDWATCH_NAMESPACE, CloudWatch
from paddock.fleet.sizing import system_nodes
from paddock.monitoring import cloudwatch

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
        configuration = k8s.core.v1.ConfigMap(
            f"{name}-configuration", metadata=self._in("configuration"), data=files, opts=self.child()
        )
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
        return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=self.namespace.metadata.name)

    def _group(self) -> aws.cloudwatch.LogGroup:
        fleet = self.fleet
        key = self.key(self.name, f"Metrics of {fleet.name}", logs_of=fleet.region)
        return aws.cloudwatch.LogGroup(
            self.name,
            name=_group_name(fleet),
            retention_in_days=self.settings.days,
            kms_key_id=key.arn,
            opts=self.child(),
        )

    def _identity(
        self, group: aws.cloudwatch.LogGroup, cluster: Cluster, account: list[pulumi.Resource]
    ) -> aws.eks.PodIdentityAssociation:
        """The right to write into that one group. CloudWatch makes the metrics of it: no right on metrics is needed."""
        write = group.arn.apply(lambda arn: policy(allow(["logs:CreateLogStream", "logs:PutLogEvents"], f"{arn}:*")))
        return aws.eks.PodIdentityAssociation(
            self.name,
            cluster_name=cluster.eks_name,
            namespace=self.namespace.metadata.name,
            service_account=_COLLECTOR,
            role_arn=self.role(self.name, POD_IDENTITY, inline=write).arn,
            opts=self.child(depends_on=[*account, *cluster.identity]),
        )

    def _isolate(self) -> None:
        """Nobody calls it; it reads the exporters, and calls the Kubernetes API, the agent of its role, and AWS."""
        https = Egress(to=[anywhere()], ports=workloads.tcp(443))
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
                Egress(to=[pods_of(self.fleet.monitoring.namespace)], ports=workloads.tcp(_DCGM_PORT)),
                Egress(to=[pods_of(CONTROLLER_NAMESPACE)], ports=workloads.tcp(_ARC_PORT)),
            ],
        )

    def _alarms(self) -> None:
        for alarm in cloudwatch.alarms(self.fleet):
            aws.cloudwatch.MetricAlarm(
                f"{self.name}-{alarm.name}",
                name=f"paddock-{self.fleet.name}-{alarm.name}",
                alarm_description=f"docs/alerts.md#{alarm.alert.lower()}",
                comparison_operator=alarm.comparison,
                threshold=alarm.threshold,
                evaluation_periods=alarm.periods,
                treat_missing_data=alarm.missing,
                alarm_actions=[self.settings.topic] if self.settings.topic else [],
                ok_actions=[self.settings.topic] if self.settings.topic else [],
                metric_queries=list(_queries(self.fleet, alarm)),
                opts=self.child(),
            )


def _queries(fleet: Fleet, alarm: cloudwatch.Alarm) -> list[aws.cloudwatch.MetricAlarmMetricQueryArgs]:
    """Return the metric of an alarm, or two and their difference."""
    names = [alarm.metric, alarm.less] if alarm.less else [alarm.metric]
    dimensions = {cloudwatch.FLEET: fleet.name}
    if alarm.scale_set:
        dimensions[cloudwatch.SCALE_SET] = alarm.scale_set
    queries = [
        aws.cloudwatch.MetricAlarmMetricQueryArgs(
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
        for index, name in enumerate(names)
    ]
    if alarm.less:
        queries.append(
            aws.cloudwatch.MetricAlarmMetricQueryArgs(
                id="waiting", expression="m0 - m1", label=alarm.alert, return_data=True
            )
        )
    return queries


def pod(fleet: Fleet) -> dict[str, Any]:
    """Spec of the collector's pod."""
    tag = f"{versions.OPENTELEMETRY_COLLECTOR}@{versions.OPENTELEMETRY_COLLECTOR_DIGEST}"
    image = f"docker.io/otel/opentelemetry-collector-contrib:{tag}"
    probe = {"httpGet": {"path": "/", "port": cloudwatch.HEALTH_PORT}, "periodSeconds": 15}
    return {
        **workloads.unprivileged(fleet, _COLLECTOR),
        "containers": [
            {
                "name": "collector",
                "image": fleet.mirror.image(image),
                "args": ["--config=/etc/otelcol/config.yaml"],
                "resources": system_nodes.COLLECTOR.kubernetes(),
                "securityContext": workloads.CONTAINER,
                "readinessProbe": probe,
                "livenessProbe": {**probe, "initialDelaySeconds": 30},
                "volumeMounts": [{"name": "configuration", "mountPath": "/etc/otelcol", "readOnly": True}],
            }
        ],
        "volumes": [{"name": "configuration", "configMap": {"name": "configuration"}}],
    }


def _group_name(fleet: Fleet) -> str:
    return f"/paddock/{fleet.name}/metrics"
