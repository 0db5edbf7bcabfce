"""Spec of the RayService: Ray's cluster with a worker group for each model and pool, and Ray Serve LLM on it."""

from __future__ import annotations

import json
from typing import Any

import yaml

from infra import versions
from infra.manifests import manifest
from infra.serving import pods
from infra.serving.engine import engine_arguments
from paddock.fleet import Fleet, ServedModel, Serving
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.sizing.serving import AUTOSCALER, shared_memory, worker_request
from paddock.ray_labels import AGENT, BACKEND, HEAD, MODEL, POOL

_PART = 0.001
"""Part of the model's resource that a GPU's worker asks for, as Ray does with types of accelerators."""
_UPGRADES = {"new-cluster": "NewCluster", "none": "None"}
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
    cluster: dict[str, Any] = manifest(
        "ray-cluster",
        version=versions.RAY,
        token=secret_name(serving.ray_token, pods.RAY_TOKEN),
        autoscaler=AUTOSCALER.kubernetes(),
        security=dict(pods.CONTAINER_SECURITY),
        scratch_mount=dict(pods.SCRATCH_MOUNT),
        head_labels={BACKEND: "cpu", AGENT: HEAD},
        head=pods.head_pod(fleet, serving),
        groups=groups,
    )
    if serving.redis:
        secret = {"name": secret_name(serving.redis.password, pods.REDIS_PASSWORD), "key": "password"}
        cluster["gcsFaultToleranceOptions"] = {
            "redisAddress": serving.redis.address,
            "redisPassword": {"valueFrom": {"secretKeyRef": secret}},
        }
    return cluster


def _worker_group(fleet: Fleet, serving: Serving, model: ServedModel, pool: GpuPool) -> Any:
    request = worker_request(fleet, model, pool)
    return manifest(
        "ray-workers",
        name=f"{model.name}-{pool.name}",
        most=model.replicas.max,
        labels={BACKEND: "cuda", MODEL: model.name, POOL: pool.name},
        cpus=str(max(1, request.cpu_m // 1000)),
        gpus=str(request.gpus),
        memory=str(shared_memory(request) * _MIB * 9 // 10),
        # The form that KubeRay hands to a shell.
        resources=json.dumps(json.dumps({_resource(model): 1})),
        pod=pods.worker_pod(fleet, serving, model, pool),
    )


def serve_config(fleet: Fleet, serving: Serving) -> Any:
    """Configuration of Ray Serve: one application of Ray Serve LLM with all models."""
    models = [_llm(fleet, model) for model in serving.models.values()]
    return manifest("ray-serve", port=pods.HTTP_PORT, models=models, head={AGENT: HEAD})


def _llm(fleet: Fleet, model: ServedModel) -> Any:
    return manifest(
        "ray-llm",
        name=model.name,
        weights=f"{pods.WEIGHTS_AT}/{model.checkpoint}",
        engine=engine_arguments(fleet, model),
        bundle={"GPU": 1, _resource(model): _PART},
        concurrency=model.concurrency,
        least=model.replicas.min,
        most=model.replicas.max,
        idle=model.replicas.idle * 60,
    )


def _resource(model: ServedModel) -> str:
    """Name of the resource of Ray that pods of the model's groups have: its replicas ask for a part of it."""
    return f"model-{model.name}"


def secret_name(source: str, own: str) -> str:
    """Name of the secret in the namespace: somebody else's, or ours."""
    kind, _, name = source.partition(":")
    return name if kind == "kubernetes" else own
