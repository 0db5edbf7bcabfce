"""Pods of Ray: the head on nodes without GPUs, and a worker for each replica of a model. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.fleet import Fleet, ServedModel, Serving, nodes
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.sizing.capacity import Resources
from paddock.fleet.sizing.serving import SCRATCH_MIB, shared_memory, worker_request

NAMESPACE = "serving"
HEAD_ACCOUNT = "ray-head"
"""Service account of the head: the autoscaler in its pod asks KubeRay for workers."""
API_KEYS, RAY_TOKEN, REDIS_PASSWORD = "serving-keys", "ray-token", "redis-password"
"""Names of the secrets."""
API_KEYS_AT = "/var/run/paddock/serving"
WEIGHTS_AT = "/models"
HTTP_PORT, DASHBOARD_PORT, METRICS_PORT = 8000, 8265, 8080

RAY: Mapping[str, str] = {"paddock.dev/serving": "ray"}
"""Label of every pod of Ray."""
ROLE, MODEL = "paddock.dev/role", "paddock.dev/model"
HEAD: Mapping[str, str] = {**RAY, ROLE: "head"}

USER = 1000
"""As in Ray's own images."""
CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
SCRATCH_MOUNT: Mapping[str, str] = {"name": "scratch", "mountPath": "/tmp"}  # noqa: S108 - a mount, no file of ours
"""Ray keeps sessions, sockets and logs there; the rest of the container is read-only."""

_KEEP = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Ray's own autoscaler decides when a pod is idle; nobody else moves one to save a node."""
_ENVIRONMENT = {"HOME": "/tmp", "RAY_USAGE_STATS_ENABLED": "0", "RAY_COLOR_PREFIX": "0"}  # noqa: S108 - the mount above


def head_pod(fleet: Fleet, serving: Serving) -> dict[str, Any]:
    """Template of the head's pod. It alone has a Kubernetes token, and the API keys as a file."""
    request = Resources(serving.head.cpu, serving.head.memory, ephemeral_mib=SCRATCH_MIB)
    pod = _pod(fleet, serving, "ray-head", request, labels=dict(HEAD))
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    spec |= {
        "serviceAccountName": HEAD_ACCOUNT,
        "automountServiceAccountToken": True,
        "nodeSelector": nodes.system_selector(fleet),
    }
    keys = serving.api_keys.removeprefix("kubernetes:") if serving.api_keys.startswith("kubernetes:") else API_KEYS
    spec["volumes"].append({"name": "keys", "secret": {"secretName": keys, "defaultMode": 0o440}})
    container["volumeMounts"].append({"name": "keys", "mountPath": API_KEYS_AT, "readOnly": True})
    container["ports"] = [
        {"name": name, "containerPort": port}
        for name, port in (
            ("gcs-server", 6379),
            ("dashboard", DASHBOARD_PORT),
            ("client", 10001),
            ("serve", HTTP_PORT),
            ("metrics", METRICS_PORT),
        )
    ]
    return pod


def worker_pod(fleet: Fleet, serving: Serving, model: ServedModel, pool: GpuPool) -> dict[str, Any]:
    """Template of the pod of one replica: its GPUs, and its share of the node, as a runner has it."""
    request = worker_request(fleet, model, pool)
    pod = _pod(fleet, serving, "ray-worker", request, labels={**RAY, ROLE: "worker", MODEL: model.name})
    spec = pod["spec"]
    spec |= {
        "automountServiceAccountToken": False,
        "nodeSelector": nodes.gpu_selector(fleet, pool),
        "tolerations": [nodes.TAINT.toleration()],
        "terminationGracePeriodSeconds": nodes.SPOT_GRACE_SECONDS,
    }
    if serving.weights:
        claim = {"claimName": serving.weights, "readOnly": True}
        spec["volumes"].append({"name": "weights", "persistentVolumeClaim": claim})
        spec["containers"][0]["volumeMounts"].append({"name": "weights", "mountPath": WEIGHTS_AT, "readOnly": True})
    return pod


def _pod(fleet: Fleet, serving: Serving, name: str, request: Resources, labels: dict[str, str]) -> dict[str, Any]:
    gpus = {nodes.GPU: str(request.gpus)} if request.gpus else {}
    memory, disk = format_memory(request.memory_mib), format_memory(request.ephemeral_mib)
    container = {
        "name": name,
        "image": fleet.mirror.image(serving.image),
        "env": [{"name": key, "value": value} for key, value in _ENVIRONMENT.items()],
        "resources": {
            "requests": {"cpu": format_cpu(request.cpu_m), "memory": memory, "ephemeral-storage": disk, **gpus},
            "limits": {"memory": memory, "ephemeral-storage": disk, **gpus},
        },
        "securityContext": dict(CONTAINER_SECURITY),
        "volumeMounts": [
            dict(SCRATCH_MOUNT),
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a mount, no file of ours
        ],
    }
    return {
        "metadata": {"labels": labels, "annotations": dict(_KEEP)},
        "spec": {
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [
                {"name": "scratch", "emptyDir": {"sizeLimit": disk}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": format_memory(shared_memory(request))}},
            ],
        },
    }
