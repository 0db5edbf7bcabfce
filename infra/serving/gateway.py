"""Paddock's gateway before Ray Serve LLM, which has no keys and no limits: a Deployment with its configuration."""

from __future__ import annotations

from typing import Any

import yaml

from infra import workloads
from infra.manifests import manifest
from infra.serving import pods
from paddock.fleet import Fleet, ServedModel, Serving, nodes
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.labels import SERVING

NAME = "serving-gateway"
PORT = 8000
GATEWAY = {SERVING: "gateway"}
"""Label of its pods."""
_KEYS_AT, _CONFIGURATION_AT = "/var/run/paddock/keys", "/etc/paddock"
_FILE = "gateway.yaml"
_UPSTREAM = f"http://serving-serve-svc.{pods.NAMESPACE}:{pods.HTTP_PORT}"
"""Service that KubeRay makes for the RayService `serving`."""
_ANSWER_S = 1800
"""Seconds to an answer's first piece, and between two: from zero replicas a node, an image and weights come first."""
_DRAIN_S, _ENDPOINTS_S = 25, 5
"""Seconds that open streams get at the end, and those until nobody sends a request to a pod that ends."""


def configuration(serving: Serving) -> dict[str, str]:
    """Return the file of a pod (`python -m paddock.serve.gateway FILE`).

    The pods know nothing of each other, so each gets its part of what all of them may do, rounded up.
    """
    limits, count = serving.limits, serving.gateway.replicas
    shared = {
        "queue": limits.queue,
        "userInFlight": limits.user_requests,
        "userPerMinute": limits.user_requests_per_minute,
    }
    document = {
        "listen": f"0.0.0.0:{PORT}",
        "keysFile": f"{_KEYS_AT}/keys",
        "limits": {
            "bodyMib": limits.body,
            "answerSeconds": _ANSWER_S,
            **({"tokens": limits.tokens} if limits.tokens else {}),
            **{key: _part(value, count) for key, value in shared.items() if value},
        },
        "models": [_model(model, count) for model in serving.models.values()],
    }
    return {_FILE: yaml.safe_dump(document, sort_keys=False, width=120)}


def _model(model: ServedModel, count: int) -> dict[str, Any]:
    """Return a model as one server with the places of all its replicas, which Ray shares out."""
    return {
        "id": model.name,
        "url": _UPSTREAM,
        "model": model.name,
        "concurrency": _part(model.concurrency * model.replicas.max, count),
        "mode": model.mode,
    }


def _part(whole: int, pods_: int) -> int:
    return -(-whole // pods_)


def deployment(fleet: Fleet, serving: Serving, keys: str) -> Any:
    """Return the spec of the Deployment; `keys` is the secret with the API keys."""
    gateway = serving.gateway
    pod = manifest(
        "gateway",
        name=NAME,
        selector=nodes.system_selector(fleet),
        grace_seconds=_ENDPOINTS_S + _DRAIN_S + 10,
        endpoint_seconds=_ENDPOINTS_S,
        labels=GATEWAY,
        pod_security=dict(pods.POD_SECURITY),
        container_security=dict(pods.CONTAINER_SECURITY),
        image=fleet.mirror.image(gateway.image),
        file=_FILE,
        configuration=_CONFIGURATION_AT,
        keys=keys,
        keys_at=_KEYS_AT,
        port=PORT,
        cpu=format_cpu(gateway.cpu),
        memory=format_memory(gateway.memory),
        scratch_mount=dict(pods.SCRATCH_MOUNT),
    )
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    digest = workloads.digest(configuration(serving))
    return workloads.deployment(GATEWAY, pod, digest, replicas=gateway.replicas, strategy=surge)
