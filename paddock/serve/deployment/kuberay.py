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

from paddock.models.shapes import shape
from paddock.serve.admission.keys import api_keys, sums
from paddock.serve.admission.limits import MIB, MOST_TOKENS, Limits
from paddock.serve.deployment.gang import GangReplica
from paddock.serve.deployment.ingress import ON_HEAD, Ingress, application
from paddock.serve.deployment.replica import Replica
from paddock.serve.deployment.row import InstanceRow, State
from paddock.serve.deployment.scheduler import NAME, NAMESPACE
from paddock.serve.deployment.workers import Seat
from paddock.serve.errors import ServeInputError
from paddock.serve.own.protocol import Spec

_KEY = b"paddock-served-models"
"""Key of Ray's own store."""


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


class LimitArguments(_Arguments):
    """Limits of the gateway; each model's queue is Ray Serve's."""

    body_mib: Annotated[int, Field(ge=1)] = 4
    tokens: Annotated[int, Field(ge=1)] = MOST_TOKENS
    user_in_flight: Annotated[int, Field(ge=1)] | None = None
    user_per_minute: Annotated[int, Field(ge=1)] | None = None

    def limits(self) -> Limits:
        return Limits(None, self.user_in_flight, self.user_per_minute, self.body_mib * MIB, self.tokens)


class GatewayArguments(_Arguments):
    """The gateway: the file of API keys on the head, a line each, and the models behind it."""

    keys_file: str
    models: list[ModelArguments]
    limits: LimitArguments = LimitArguments()


Settings = TypeVar("Settings", bound=_Arguments)


def model(arguments: dict[str, Any]) -> Any:
    """Return the application of one model. Raises ServeInputError, ServeError."""
    from ray import serve

    settings = _parsed(ModelArguments, arguments)
    spec = Spec(
        shape(settings.model, settings.id), settings.dtype, settings.device, settings.concurrency, settings.context,
        settings.checkpoint,
    )  # fmt: skip
    if settings.tensor_parallel == 1:
        return serve.deployment(Replica).options(name="replica").bind(spec, settings.mode)
    # Its placement group stands in the configuration, with a bundle for each rank; Ray hands each its GPU.
    ranks = [Seat(f"GPU {number} of the pod", {"GPU": 1}, gpus=1) for number in range(settings.tensor_parallel)]
    return serve.deployment(GangReplica).options(name="replica").bind(spec, ranks, settings.mode)


def gateway(arguments: dict[str, Any]) -> Any:
    """Return the application of the gateway, which runs on the head. Raises ServeInputError."""
    import ray

    settings = _parsed(GatewayArguments, arguments)
    options = {"name": NAME, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True, "max_restarts": -1}
    directory = ray.remote(Directory).options(**options, **ON_HEAD).remote()
    ray.get(directory.configure.remote([model.model_dump() for model in settings.models]))
    path = Path(settings.keys_file)
    # The keys are read where the gateway runs: only the head's pod has them.
    limits = settings.limits.limits()
    return application(lambda: Ingress(sums(api_keys(path)), limits))


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
        reason = (application.message.strip().splitlines() or [None])[-1] if application else None
        return InstanceRow(
            model["id"], model["model"], state_of(application), reason, "HomogeneousCuda", model["device"],
            model["dtype"], model["context"], model["concurrency"], self._since, model["tensor_parallel"],
        ).document()  # fmt: skip


def state_of(application: Any) -> State:
    """Return the state of a model by that of its application, Ray Serve's `ApplicationStatusOverview` or None.

    Ray Serve calls an application unhealthy as soon as one replica is; the others answer while it replaces that.
    """
    if application is None or application.status == "DELETING":
        return "loading"
    deployments = application.deployments.values()
    if application.status == "RUNNING" or any(row.replica_states.get("RUNNING") for row in deployments):
        return "serving"
    return "failed" if application.status == "DEPLOY_FAILED" else "loading"


def _parsed(kind: type[Settings], arguments: Mapping[str, Any]) -> Settings:
    try:
        return kind.model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ServeInputError(
            f"serveConfigV2: args.{where}: {first['msg']}\n    expected: what inv plan of the same version writes"
        ) from None
