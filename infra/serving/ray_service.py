"""Spec of the RayService: Ray's cluster with a worker group for each model and pool, and the applications on it."""

from __future__ import annotations

from typing import Any

import yaml

from infra import versions
from infra.serving import pods
from paddock.fleet import Fleet, ServedModel, Serving
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.sizing.serving import AUTOSCALER, shared_memory, weights_format, worker_request
from paddock.ray_labels import AGENT, BACKEND, HEAD, MODEL, POOL

APPLICATIONS = "paddock.serve.deployment.kuberay"
"""Module in the image whose functions build the applications from their arguments."""
_UPGRADES = {"new-cluster": "NewCluster", "none": "None"}
_IDLE_WORKER_S = 120
"""Seconds after which Ray's autoscaler gives back a pod without a replica."""
_MIB = 2**20


def spec(fleet: Fleet, serving: Serving) -> dict[str, Any]:
    """Spec of the RayService."""
    return {
        "upgradeStrategy": {"type": _UPGRADES[serving.upgrade]},
        "serveConfigV2": yaml.safe_dump(serve_config(fleet, serving), sort_keys=False, width=200),
        "rayClusterConfig": _cluster(fleet, serving),
    }


def _cluster(fleet: Fleet, serving: Serving) -> dict[str, Any]:
    groups = [
        _worker_group(fleet, serving, model, fleet.pools[pool])
        for model in serving.models.values()
        for pool in model.pools
    ]
    cluster: dict[str, Any] = {
        "rayVersion": versions.RAY,
        "authOptions": {"mode": "token", "secretName": _secret(serving.ray_token, pods.RAY_TOKEN)},
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": "v2",
            "idleTimeoutSeconds": _IDLE_WORKER_S,
            "resources": AUTOSCALER.kubernetes(),
            "securityContext": dict(pods.CONTAINER_SECURITY),
            "volumeMounts": [dict(pods.SCRATCH_MOUNT)],
        },
        "headGroupSpec": {
            "serviceType": "ClusterIP",
            "enableIngress": False,
            "labels": {BACKEND: "cpu", AGENT: HEAD},
            # No work runs beside the head. The operator asks the dashboard about applications, with the token.
            "rayStartParams": {"num-cpus": "0", "num-gpus": "0", "dashboard-host": "0.0.0.0"},  # noqa: S104 - policies say who may
            "template": pods.head_pod(fleet, serving),
        },
        "workerGroupSpecs": groups,
    }
    if serving.redis:
        secret = {"name": _secret(serving.redis.password, pods.REDIS_PASSWORD), "key": "password"}
        cluster["gcsFaultToleranceOptions"] = {
            "redisAddress": serving.redis.address,
            "redisPassword": {"valueFrom": {"secretKeyRef": secret}},
        }
    return cluster


def _worker_group(fleet: Fleet, serving: Serving, model: ServedModel, pool: GpuPool) -> dict[str, Any]:
    """A group that Ray's autoscaler fills for replicas of one model, from no pod at all."""
    request = worker_request(fleet, model, pool)
    return {
        "groupName": f"{model.name}-{pool.name}",
        "replicas": 0,
        "minReplicas": 0,
        "maxReplicas": model.replicas.max,
        "labels": {BACKEND: "cuda", MODEL: model.name, POOL: pool.name},
        # Written out, for the autoscaler reads them before the first pod of the group is there.
        "rayStartParams": {
            "num-cpus": str(max(1, request.cpu_m // 1000)),
            "num-gpus": str(request.gpus),
            "object-store-memory": str(shared_memory(request) * _MIB * 9 // 10),
        },
        "template": pods.worker_pod(fleet, serving, model, pool),
    }


def serve_config(fleet: Fleet, serving: Serving) -> dict[str, Any]:
    """Configuration of Ray Serve (its ServeDeploySchema): an application a model, and the gateway before them."""
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": pods.HTTP_PORT},  # noqa: S104 - network policies say who may
        "applications": [
            *(_application(fleet, model) for model in serving.models.values()),
            {
                "name": "gateway",
                "route_prefix": "/",
                "import_path": f"{APPLICATIONS}:gateway",
                "args": {
                    "keys_file": f"{pods.API_KEYS_AT}/keys",
                    "limits": _limits(serving),
                    "models": [_arguments(fleet, model) for model in serving.models.values()],
                },
            },
        ],
    }


def _application(fleet: Fleet, model: ServedModel) -> dict[str, Any]:
    replicas = model.replicas
    return {
        "name": f"model-{model.name}",
        "route_prefix": None,
        "import_path": f"{APPLICATIONS}:model",
        "args": _arguments(fleet, model),
        "deployments": [
            {
                "name": "replica",
                "max_ongoing_requests": model.concurrency,
                "max_queued_requests": model.queue,
                "graceful_shutdown_timeout_s": 60,
                "autoscaling_config": {
                    "min_replicas": replicas.min,
                    "max_replicas": replicas.max,
                    "target_ongoing_requests": model.concurrency,
                    "upscale_delay_s": 10,
                    "downscale_delay_s": replicas.idle * 60,
                },
                **_resources(model),
            }
        ],
    }


def _resources(model: ServedModel) -> dict[str, Any]:
    """Resources of a replica. One of several GPUs is a gang: a process a GPU, all in one pod of the model's group."""
    actor = {"num_cpus": 1, "num_gpus": 1}
    if model.tensor_parallel == 1:
        return {"ray_actor_options": actor | {"label_selector": {MODEL: model.name}}}
    return {
        "ray_actor_options": actor,
        "placement_group_bundles": [{"CPU": 1, "GPU": 1}, *({"GPU": 1} for _ in range(1, model.tensor_parallel))],
        "placement_group_strategy": "STRICT_PACK",
        "placement_group_bundle_label_selector": [{MODEL: model.name}],
    }


def _arguments(fleet: Fleet, model: ServedModel) -> dict[str, Any]:
    """Arguments of a model's application: all that the image needs to know of it."""
    return {
        "id": model.name,
        "model": model.model,
        "checkpoint": f"{pods.WEIGHTS_AT}/{model.checkpoint}" if model.checkpoint else "",
        "dtype": weights_format(fleet, model),
        "context": model.context,
        "concurrency": model.concurrency,
        "mode": model.mode,
        "tensor_parallel": model.tensor_parallel,
    }


def _limits(serving: Serving) -> dict[str, int]:
    """Limits of the gateway, in the words of the image; what is not written has none."""
    limits = serving.limits
    named = {
        "body_mib": limits.body,
        "tokens": limits.tokens,
        "user_in_flight": limits.user_requests,
        "user_per_minute": limits.user_requests_per_minute,
    }
    return {name: value for name, value in named.items() if value is not None}


def _secret(source: str, own: str) -> str:
    """Name of the secret in the namespace: somebody else's, or ours."""
    kind, _, name = source.partition(":")
    return name if kind == "kubernetes" else own
