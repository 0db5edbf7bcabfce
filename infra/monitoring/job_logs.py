"""Output of runner pods in CloudWatch Logs: Fluent Bit on their nodes, which reads their files and nothing else."""

from __future__ import annotations

import hashlib
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import yaml

from infra import versions
from infra.arc.runner_pod import PRIVILEGED, RUNNERS
from infra.cluster.control_plane import Cluster
from infra.component import POD_IDENTITY, POD_IDENTITY_AGENT, PRIVILEGED_BECAUSE, Component, allow, policy
from infra.network.policies import Egress, Port, addresses_in, anywhere, name_service, network_policy
from paddock.fleet import Fleet, nodes
from paddock.fleet.sizing import daemonsets

FILES = "/var/log/pods"
"""Folder of the kubelet: NAMESPACE_POD_UID/CONTAINER/0.log."""
_STATE, _CONFIGURATION = "/var/lib/fluent-bit", "/etc/fluent-bit"
_PORT = 2020


class JobLogs(Component):
    """A log group, and the DaemonSet that may write there. It asks the Kubernetes API nothing: it has no token."""

    group: aws.cloudwatch.LogGroup

    def __init__(self, name: str, fleet: Fleet, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        self.fleet = fleet
        # Reading files of the host is what the stricter levels refuse.
        namespace = k8s.core.v1.Namespace(
            name,
            metadata={
                "name": name,
                "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
                "annotations": {PRIVILEGED_BECAUSE: f"Fluent Bit reads the host's {FILES}, as root and read-only"},
            },
            opts=self.child(),
        )
        self.metadata = k8s.meta.v1.ObjectMetaArgs(name="fluent-bit", namespace=namespace.metadata.name)
        self.group = self._group()
        identity = self._identity(cluster)
        self._isolate()
        configuration = k8s.core.v1.ConfigMap(
            name, metadata=self.metadata, data={"fluent-bit.yaml": settings(fleet)}, opts=self.child()
        )
        k8s.apps.v1.DaemonSet(
            name,
            metadata=self.metadata,
            spec=k8s.apps.v1.DaemonSetSpecArgs(
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=_LABELS),
                # One after another would outlast `pulumi up` where there are many nodes.
                update_strategy=k8s.apps.v1.DaemonSetUpdateStrategyArgs(
                    type="RollingUpdate",
                    rolling_update=k8s.apps.v1.RollingUpdateDaemonSetArgs(max_unavailable="20%"),
                ),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    # Fluent Bit reads its configuration once, at the start.
                    metadata=k8s.meta.v1.ObjectMetaArgs(
                        labels=_LABELS, annotations={"paddock.dev/configuration": _digest(fleet)}
                    ),
                    spec=pod(fleet),
                ),
            ),
            # A pod that starts before its role is there never gets it.
            opts=self.child(depends_on=[configuration, identity, *self.permissions, *cluster.ready]),
        )
        self.register_outputs({"group": self.group.name})

    def _group(self) -> aws.cloudwatch.LogGroup:
        name, fleet = self.name, self.fleet
        key = self.key(name, f"Logs of the jobs of {fleet.name}", logs_of=fleet.region)
        return aws.cloudwatch.LogGroup(
            name,
            name=_group_name(fleet),
            retention_in_days=fleet.logs.jobs.days,
            kms_key_id=key.arn,
            opts=self.child(),
        )

    def _identity(self, cluster: Cluster) -> aws.eks.PodIdentityAssociation:
        account = k8s.core.v1.ServiceAccount(
            self.name, metadata=self.metadata, automount_service_account_token=False, opts=self.child()
        )
        write = self.group.arn.apply(
            lambda arn: policy(allow(["logs:CreateLogStream", "logs:PutLogEvents"], f"{arn}:*"))
        )
        return aws.eks.PodIdentityAssociation(
            self.name,
            cluster_name=cluster.eks_name,
            namespace=self.metadata.namespace,
            service_account="fluent-bit",
            role_arn=self.role(self.name, POD_IDENTITY, inline=write).arn,
            opts=self.child(depends_on=[account, *cluster.identity]),
        )

    def _isolate(self) -> None:
        """Nobody calls it; it calls the name service, the agent that hands out its role, and AWS."""
        metadata = k8s.meta.v1.ObjectMetaArgs(name="default", namespace=self.metadata.namespace)
        https = Egress(to=[anywhere()], ports=[Port(port=443, protocol="TCP")])
        network_policy(
            self,
            self.name,
            metadata,
            ingress=[],
            egress=[name_service(), addresses_in([POD_IDENTITY_AGENT], [80]), https],
        )


_LABELS = {"app.kubernetes.io/name": "fluent-bit"}


def settings(fleet: Fleet) -> str:
    """Configuration of Fluent Bit: one stream a container, `NAMESPACE.POD.CONTAINER` behind `pods/`.

    Namespace, pod and container stand in the file's name, so the Kubernetes API is not asked for them.
    """
    tail: dict[str, Any] = {
        "name": "tail",
        "path": ",".join(f"{FILES}/{namespace}_*/*/*.log" for namespace in (RUNNERS, PRIVILEGED)),
        "tag": "<namespace>.<pod>.<container>",
        "tag_regex": rf"^{FILES}/(?<namespace>[^_]+)_(?<pod>[^_]+)_[^/]+/(?<container>[^/]+)/[0-9]+\.log$",
        "multiline.parser": "cri",
        "db": f"{_STATE}/tail.db",
        # A runner's pod may be there before this one, and gone soon: by default files are looked for once a minute.
        "read_from_head": True,
        "refresh_interval": 5,
        "rotate_wait": 30,
        "buffer_max_size": "256k",
        "skip_long_lines": True,
        "mem_buf_limit": "32M",
    }
    cloudwatch: dict[str, Any] = {
        "name": "cloudwatch_logs",
        "match": "*",
        "region": fleet.region,
        "log_group_name": _group_name(fleet),
        "log_stream_prefix": "pods/",
        "log_key": "log",
        "auto_create_group": False,
        "retry_limit": 10,
    }
    service = {"flush": 5, "grace": 30, "log_level": "warn", "http_server": True, "http_port": _PORT}
    document = {"service": service, "pipeline": {"inputs": [tail], "outputs": [cloudwatch]}}
    return yaml.safe_dump(document, sort_keys=False, width=200)


def pod(fleet: Fleet) -> Any:
    """The pod on each node that has runner pods: root, for the files are root's, and without any capability."""
    image = f"public.ecr.aws/aws-observability/aws-for-fluent-bit:{versions.FLUENT_BIT}@{versions.FLUENT_BIT_DIGEST}"
    return {
        "serviceAccountName": "fluent-bit",
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 45,
        "tolerations": [nodes.TAINT.toleration()],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _nodes(fleet)}},
        "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "fluent-bit",
                "image": fleet.mirror.image(image),
                # The image's own command is a script that brings a configuration along.
                "command": ["/fluent-bit/bin/fluent-bit", f"--config={_CONFIGURATION}/fluent-bit.yaml"],
                "resources": daemonsets.FLUENT_BIT.kubernetes(),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "livenessProbe": {"httpGet": {"path": "/", "port": _PORT}, "initialDelaySeconds": 30},
                "volumeMounts": [
                    {"name": "pods", "mountPath": FILES, "readOnly": True},
                    {"name": "state", "mountPath": _STATE},
                    {"name": "configuration", "mountPath": _CONFIGURATION, "readOnly": True},
                ],
            }
        ],
        "volumes": [
            {"name": "pods", "hostPath": {"path": FILES, "type": "Directory"}},
            {"name": "state", "emptyDir": {"sizeLimit": "64Mi"}},
            {"name": "configuration", "configMap": {"name": "fluent-bit"}},
        ],
    }


def _nodes(fleet: Fleet) -> dict[str, Any]:
    """Nodes of the pools; where runner pods steer jobs in other pods, the nodes that those may run on, too."""
    terms: list[dict[str, Any]] = [{"key": nodes.POOL, "operator": "Exists"}]
    if fleet.steers_job_pods:
        system = nodes.system_selector(fleet) or {"kubernetes.io/os": "linux"}
        terms += [{"key": key, "operator": "In", "values": [value]} for key, value in system.items()]
    return {"nodeSelectorTerms": [{"matchExpressions": [term]} for term in terms]}


def _group_name(fleet: Fleet) -> str:
    return f"/paddock/{fleet.name}/jobs"


def _digest(fleet: Fleet) -> str:
    return hashlib.sha256(settings(fleet).encode()).hexdigest()[:16]
