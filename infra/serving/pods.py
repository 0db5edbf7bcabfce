"""Pods of Ray Serve LLM: the head on nodes without GPUs, a worker for each replica of a model. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra import versions
from infra.manifests import manifest
from paddock.fleet import Fleet, ServedModel, Serving, nodes
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.sizing.capacity import Resources
from paddock.fleet.sizing.serving import SCRATCH_MIB, shared_memory, worker_request
from paddock.labels import MODEL, ROLE, SERVING

NAMESPACE = "serving"
HEAD_ACCOUNT = "ray-head"
"""Service account of the head: the autoscaler in its pod asks KubeRay for workers."""
API_KEYS, RAY_TOKEN, REDIS_PASSWORD = "serving-keys", "ray-token", "redis-password"
"""Names of the secrets."""
WEIGHTS_AT = "/models"
HTTP_PORT, DASHBOARD_PORT, METRICS_PORT = 8000, 8265, 8080

RAY: Mapping[str, str] = {SERVING: "ray"}
"""Label of every pod of Ray."""
HEAD: Mapping[str, str] = {**RAY, ROLE: "head"}

USER = 1000
"""As in Ray's own images, and in the gateway's."""
POD_SECURITY: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
SCRATCH_MOUNT: Mapping[str, str] = {"name": "scratch", "mountPath": "/tmp"}  # noqa: S108 - a mount, no file of ours
"""Ray keeps sessions, sockets and logs there; the rest of the container is read-only."""


def head_pod(fleet: Fleet, serving: Serving) -> Any:
    """Template of the head's pod. It alone has a Kubernetes token."""
    request = Resources(serving.head.cpu, serving.head.memory, ephemeral_mib=SCRATCH_MIB)
    pod = _pod(fleet, serving, "ray-head", request, labels=dict(HEAD))
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    spec |= {
        "serviceAccountName": HEAD_ACCOUNT,
        "automountServiceAccountToken": True,
        "nodeSelector": nodes.system_selector(fleet),
    }
    ports = {
        "gcs-server": 6379,
        "dashboard": DASHBOARD_PORT,
        "client": 10001,
        "serve": HTTP_PORT,
        "metrics": METRICS_PORT,
    }
    container["ports"] = [{"name": name, "containerPort": port} for name, port in ports.items()]
    return pod


def worker_pod(fleet: Fleet, serving: Serving, model: ServedModel, pool: GpuPool) -> Any:
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
    spec["volumes"].append(weights(serving))
    spec["containers"][0]["volumeMounts"].append({"name": "weights", "mountPath": WEIGHTS_AT, "readOnly": True})
    return pod


def weights(serving: Serving) -> dict[str, Any]:
    """Return the volume of the checkpoints."""
    return {"name": "weights", "persistentVolumeClaim": {"claimName": serving.weights, "readOnly": True}}


def _pod(fleet: Fleet, serving: Serving, name: str, request: Resources, labels: dict[str, str]) -> Any:
    memory, disk = format_memory(request.memory_mib), format_memory(request.ephemeral_mib)
    gpus = {nodes.GPU: str(request.gpus)} if request.gpus else {}
    limits = {"memory": memory, "ephemeral-storage": disk, **gpus}
    return manifest(
        "ray-pod",
        labels=labels,
        name=name,
        image=fleet.mirror.image(serving.image or versions.RAY_LLM),
        requests={"cpu": format_cpu(request.cpu_m), **limits},
        limits=limits,
        pod_security=dict(POD_SECURITY),
        container_security=dict(CONTAINER_SECURITY),
        scratch_mount=dict(SCRATCH_MOUNT),
        disk=disk,
        shm=format_memory(shared_memory(request)),
    )
