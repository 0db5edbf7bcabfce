"""Output of runner pods in CloudWatch Logs: Fluent Bit on their nodes, which reads their files and nothing else."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import yaml

from infra import versions, workloads
from infra.cluster.control_plane import Cluster
from infra.component import POD_IDENTITY, POD_IDENTITY_AGENT, Component, writes_logs
from infra.manifests import manifest
from infra.network.policies import Egress, addresses_in, anywhere, name_service, network_policy, tcp
from paddock.fleet import Fleet, nodes
from paddock.fleet.sizing import daemonsets
from paddock.labels import CONFIGURATION, POOL

FILES = "/var/log/pods"
"""Folder of the kubelet: NAMESPACE_POD_UID/CONTAINER/0.log."""


class JobLogs(Component):
    """A log group, and the DaemonSet that may write there. It asks the Kubernetes API nothing: it has no token."""

    group: aws.cloudwatch.LogGroup

    def __init__(self, name: str, fleet: Fleet, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        self.fleet = fleet
        # Reading files of the host is what the stricter levels refuse.
        why = f"Fluent Bit reads the host's {FILES}, as root and read-only"
        self.namespace = workloads.privileged_namespace(self, name, why)
        self.metadata = workloads.within(self.namespace, "fluent-bit")
        self.group = self._group()
        identity = self._identity(cluster)
        self._isolate()
        files = {"fluent-bit.yaml": settings(fleet)}
        configuration = workloads.config_map(self, name, self.metadata, files)
        k8s.apps.v1.DaemonSet(
            name,
            metadata=self.metadata,
            spec={
                "selector": {"match_labels": _LABELS},
                # One after another would outlast `pulumi up` where there are many nodes.
                "update_strategy": {"type": "RollingUpdate", "rolling_update": {"max_unavailable": "20%"}},
                "template": {
                    # Fluent Bit reads its configuration once, at the start.
                    "metadata": {"labels": _LABELS, "annotations": {CONFIGURATION: workloads.digest(files)}},
                    "spec": pod(fleet),
                },
            },
            # A pod that starts before its role is there never gets it.
            opts=self.child(depends_on=[configuration, identity, *self.permissions, *cluster.ready]),
        )
        self.register_outputs({"group": self.group.name})

    def _group(self) -> aws.cloudwatch.LogGroup:
        fleet = self.fleet
        purpose = f"Logs of the jobs of {fleet.name}"
        return self.log_group(self.name, purpose, fleet.region, fleet.logs.jobs.days, _group_name(fleet))

    def _identity(self, cluster: Cluster) -> aws.eks.PodIdentityAssociation:
        account = k8s.core.v1.ServiceAccount(
            self.name, metadata=self.metadata, automount_service_account_token=False, opts=self.child()
        )
        role = self.role(self.name, POD_IDENTITY, inline=writes_logs(self.group))
        needs = [account, *cluster.identity]
        return self.pod_identity(cluster.eks_name, self.namespace.metadata.name, "fluent-bit", role, needs)

    def _isolate(self) -> None:
        """Nobody calls it; it calls the name service, the agent that hands out its role, and AWS."""
        metadata = workloads.within(self.namespace, "default")
        https = Egress(to=[anywhere()], ports=tcp(443))
        network_policy(
            self,
            self.name,
            metadata,
            ingress=[],
            egress=[name_service(), addresses_in([POD_IDENTITY_AGENT], [80]), https],
        )


_LABELS = {"app.kubernetes.io/name": "fluent-bit"}


def settings(fleet: Fleet) -> str:
    """Configuration of Fluent Bit: one stream a container, `NAMESPACE.POD.CONTAINER` behind `pods/`."""
    arc = fleet.cluster.arc
    document = manifest(
        "fluent-bit-settings",
        paths=",".join(f"{FILES}/{namespace}_*/*/*.log" for namespace in (arc.runners, arc.privileged)),
        files=FILES,
        region=fleet.region,
        group=_group_name(fleet),
    )
    return yaml.safe_dump(document, sort_keys=False, width=200)


def pod(fleet: Fleet) -> Any:
    """The pod on each node that has runner pods."""
    image = f"public.ecr.aws/aws-observability/aws-for-fluent-bit:{versions.FLUENT_BIT}@{versions.FLUENT_BIT_DIGEST}"
    return manifest(
        "fluent-bit",
        toleration=nodes.TAINT.toleration(),
        terms=_nodes(fleet),
        image=fleet.mirror.image(image),
        resources=daemonsets.FLUENT_BIT.kubernetes(),
        files=FILES,
    )


def _nodes(fleet: Fleet) -> list[dict[str, Any]]:
    """Nodes of the pools; where runner pods steer jobs in other pods, the nodes that those may run on, too."""
    terms: list[dict[str, Any]] = [{"key": POOL, "operator": "Exists"}]
    if fleet.steers_job_pods:
        system = nodes.system_selector(fleet) or {"kubernetes.io/os": "linux"}
        terms += [{"key": key, "operator": "In", "values": [value]} for key, value in system.items()]
    return [{"matchExpressions": [term]} for term in terms]


def _group_name(fleet: Fleet) -> str:
    return f"/paddock/{fleet.name}/jobs"
