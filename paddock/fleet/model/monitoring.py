"""Monitoring: metrics of GPUs and runners, alerts, and where both go; logs of jobs, whose pods are gone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from paddock.fleet.model.base import Distinct, KubernetesName, Matching, Model, RetentionDays
from paddock.fleet.model.quantity import Memory, format_memory

PROMETHEUS_NAMESPACE = "prometheus"
CLOUDWATCH_NAMESPACE = "cloudwatch-metrics"
_LEAST_DISK = 5 * 1024
"""MiB. Prometheus writes blocks of two hours, and three of them before it makes them one."""


def _room(mib: int) -> int:
    if mib < _LEAST_DISK:
        raise ValueError(
            f"{format_memory(mib)} is too small for Prometheus; write {format_memory(_LEAST_DISK)} or more"
        )
    return mib


class Prometheus(Model):
    """A Prometheus of the fleet's own, for a cluster that has none."""

    days: Annotated[int, Field(ge=1, le=365)] = 15
    """Days that it keeps metrics; the oldest go earlier where the disk fills up."""
    disk: Annotated[Memory, AfterValidator(_room)] = 20 * 1024
    """Its volume, of 5Gi at least."""
    storage_class: KubernetesName = "gp3-encrypted"
    """Storage class, of which `gp3-encrypted` comes with the fleet."""
    alertmanager: (
        Annotated[
            str,
            Matching(
                r"^http://[a-z0-9]([a-z0-9.-]*[a-z0-9])?:\d{1,5}$",
                "the address of an Alertmanager, such as http://alertmanager.ops:9093",
            ),
        ]
        | None
    ) = None
    """Alertmanager that gets the alerts. Without one they show in Prometheus alone."""
    clients: Annotated[tuple[KubernetesName, ...], Distinct()] = ()
    """Namespaces whose pods may query it, such as Grafana's; by default none may."""


class CloudWatch(Model):
    """Metrics, alarms and a dashboard in CloudWatch, for those without a Prometheus."""

    days: RetentionDays = 365
    """Days that the log group keeps what the metrics were made of; CloudWatch keeps metrics for 15 months."""
    topic: (
        Annotated[
            str,
            Matching(
                r"^arn:aws:sns:[a-z0-9-]+:\d{12}:[\w-]+$", "the ARN of an SNS topic: arn:aws:sns:REGION:ACCOUNT:NAME"
            ),
        ]
        | None
    ) = None
    """SNS topic that alarms go to. Without one they show in CloudWatch alone."""


class Monitoring(Model):
    """GPU metrics by DCGM and alerts on them."""

    enabled: bool = False
    """Install DCGM Exporter and the alert rules; those about nodes read kube-state-metrics, which you bring, or which
    comes with `prometheus`."""
    prometheus: Prometheus | None = None
    """A Prometheus and a kube-state-metrics that read all of this; `{}` takes the defaults. By default none: the
    cluster has its own."""
    cloudwatch: CloudWatch | None = None
    """The most important metrics, alarms and a dashboard in CloudWatch; `{}` takes the defaults. By default none. It
    takes an EKS cluster, in one that exists already with the add-on eks-pod-identity-agent."""
    rules: Literal["configmap", "prometheus-rule"] = "configmap"
    """`prometheus-rule` needs the Prometheus operator's CRDs in the cluster."""
    namespace: Annotated[str, Matching(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "a namespace")] = "monitoring"
    """Namespace that it all goes to."""
    service_monitor: bool = False
    """Make a ServiceMonitor for DCGM and a PodMonitor for Actions Runner Controller; needs the Prometheus operator's
    CRDs."""
    dashboards: bool = False
    """Make a ConfigMap of each Grafana dashboard, with the label `grafana_dashboard: "1"` that the sidecar of Grafana's
    chart looks for."""
    host_engine: bool = False
    """GPU nodes of an existing cluster already run a DCGM engine on port 5555, as EKS's node monitoring agent does:
    DCGM Exporter then asks it and starts none. Nodes of a new cluster always have one."""

    @property
    def scrapers(self) -> tuple[str, ...]:
        """Namespaces from which metrics may be read."""
        own = (PROMETHEUS_NAMESPACE,) if self.prometheus else ()
        sent = (CLOUDWATCH_NAMESPACE,) if self.cloudwatch else ()
        return (self.namespace, *own, *sent)


class JobLogs(Model):
    """Output of runner pods: the runner's own log, the Docker daemon's, and what job containers print. GitHub keeps the
    logs of a workflow's steps, whatever is written here."""

    to: Literal["none", "cloudwatch"] = "none"
    """`none`: lost with the pod. `cloudwatch`: CloudWatch Logs, group `/paddock/NAME/jobs`, encrypted, paid by the GB.
    Fluent Bit on each node sends it, with a role that may write there and nowhere else. It takes an EKS cluster, in one
    that exists already with the add-on eks-pod-identity-agent."""
    days: RetentionDays = 365
    """Days that they are kept."""


class Logs(Model):
    """Logs that are kept beyond the life of what wrote them."""

    jobs: JobLogs = JobLogs()
    """Output of runner pods."""
