"""Applications of a RayService: one a model, and the gateway before them.

KubeRay hands these functions to Ray Serve by their import path, with arguments that the fleet's program writes
(`infra.serving.ray_service`). Ray Serve and its autoscaler start and end the replicas. No scheduler of ours places
them: each asks for its GPUs and for a node of its model's worker group. One of several GPUs is a gang inside its pod.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddock.bench.engine.protocol import Spec
from paddock.bench.engine.shapes import shape
from paddock.serve.admission.keys import api_keys, sums
from paddock.serve.agents.home import HEAD
from paddock.serve.agents.ray_process import AGENT
from paddock.serve.deployment.gang import GangReplica
from paddock.serve.deployment.ingress import APPLICATION, Ingress
from paddock.serve.deployment.replica import Replica
from paddock.serve.deployment.scheduler import NAME, NAMESPACE
from paddock.serve.deployment.workers import Seat
from paddock.serve.errors import ServeInputError

_MOST_REQUESTS = 4096
"""Requests that the gateway holds at once; each model's queue is shorter."""
_KEY = b"paddock-served-models"
"""Key of Ray's own store."""
_STATES = {"RUNNING": "serving", "DEPLOY_FAILED": "failed", "UNHEALTHY": "failed"}
"""State of an instance by that of its application; every other one is `loading`."""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ModelArguments(_Arguments):
    """A served model. `checkpoint` is a folder in the container; without one the weights are random."""

    id: str
    model: str
    checkpoint: str = ""
    dtype: str
    context: Annotated[int, Field(ge=1)]
    concurrency: Annotated[int, Field(ge=1)] = 1
    mode: Literal["conservative", "default", "aggressive"] = "aggressive"
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    device: Literal["cuda", "cpu"] = "cuda"


class GatewayArguments(_Arguments):
    """The gateway: the file of API keys on the head, a line each, and the models behind it."""

    keys_file: str
    models: list[ModelArguments]


Settings = TypeVar("Settings", bound=_Arguments)


def model(arguments: dict[str, Any]) -> Any:
    """Return the application of one model. Raises ServeInputError, BenchError."""
    from ray import serve

    settings = _parsed(ModelArguments, arguments)
    spec = Spec(
        shape(settings.model, settings.id), settings.dtype, settings.device, settings.concurrency, settings.context,
        settings.checkpoint, compiled=False,
    )  # fmt: skip
    if settings.tensor_parallel == 1:
        return serve.deployment(Replica).options(name="replica").bind(spec, settings.mode)
    # Its placement group stands in the configuration, with a bundle for each rank; Ray hands each its GPU.
    ranks = [Seat(f"GPU {number} of the pod", {"GPU": 1}, gpus=1) for number in range(settings.tensor_parallel)]
    return serve.deployment(GangReplica).options(name="replica").bind(spec, ranks, settings.mode)


def gateway(arguments: dict[str, Any]) -> Any:
    """Return the application of the gateway, which runs on the head. Raises ServeInputError."""
    import ray
    from ray import serve

    settings = _parsed(GatewayArguments, arguments)
    on_head = {"num_cpus": 0, "label_selector": {AGENT: HEAD}}
    options = {"name": NAME, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True, "max_restarts": -1}
    directory = ray.remote(Directory).options(**options, **on_head).remote()
    ray.get(directory.configure.remote([model.model_dump() for model in settings.models]))
    path = Path(settings.keys_file)
    # The keys are read where the gateway runs: only the head's pod has them.
    deployed = serve.ingress(lambda: Ingress(sums(api_keys(path))).app)(_Deployed)
    return (
        serve.deployment(deployed)
        .options(name=APPLICATION, max_ongoing_requests=_MOST_REQUESTS, ray_actor_options=on_head)
        .bind()
    )


class Directory:
    """Models of the RayService with their states: an actor in the scheduler's place, which the gateway asks."""

    def __init__(self) -> None:
        from ray.experimental.internal_kv import _internal_kv_get

        kept = _internal_kv_get(_KEY)  # where Redis keeps the head's state, a new head finds it
        self._models: list[dict[str, Any]] = json.loads(kept) if kept else []
        self._since = time.time()

    def configure(self, models: list[dict[str, Any]]) -> None:
        """Take the models of a new configuration."""
        from ray.experimental.internal_kv import _internal_kv_put

        _internal_kv_put(_KEY, json.dumps(models).encode(), overwrite=True)
        self._models = models

    def models(self) -> list[dict[str, Any]]:
        """Return every model as an instance. One without a replica serves, too: a request brings it one."""
        from ray import serve

        applications = serve.status().applications
        return [self._document(model, applications.get(f"model-{model['id']}")) for model in self._models]

    def _document(self, model: Mapping[str, Any], application: Any) -> dict[str, Any]:
        state = _STATES.get(application.status.value, "loading") if application else "loading"
        return {
            "id": model["id"],
            "model": model["model"],
            "state": state,
            "reason": (application.message.strip().splitlines() or [None])[-1] if application else None,
            "class": "HomogeneousCuda",
            "backend": model["device"],
            "dtype": model["dtype"],
            "tensor_parallel": model["tensor_parallel"],
            "devices": [],
            "context": model["context"],
            "concurrency": model["concurrency"],
            "since": self._since,
            "moves": 0,
            "recovered_seconds": None,
        }


class _Deployed:
    """Deployment that the ASGI application is put on."""


def _parsed(kind: type[Settings], arguments: Mapping[str, Any]) -> Settings:
    try:
        return kind.model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ServeInputError(
            f"serveConfigV2: args.{where}: {first['msg']}\n    expected: what inv plan of the same version writes"
        ) from None
