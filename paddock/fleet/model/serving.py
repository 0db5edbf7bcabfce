"""Models that are served on the fleet's GPUs, by Ray on Kubernetes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from paddock.fleet.model.base import (
    Distinct,
    KubernetesName,
    Matching,
    Model,
    NamedModel,
    below_min,
    refuse,
    with_names,
)
from paddock.fleet.model.github import IN_CONFIG, SecretSource
from paddock.fleet.model.quantity import Cpu, Delay, Memory
from paddock.fleet.model.runner import Image

MOST_GPUS = 16
"""GPUs of the largest node that the catalogue knows."""

Name = Annotated[
    str,
    Matching(r"^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$", "lower-case letters, digits and dashes, at most 30 characters"),
]
"""Name of a served model: of its Ray application, its worker group and what requests call it."""


class Replicas(Model):
    """Number of copies of a model, which follows its requests."""

    min: Annotated[int, Field(ge=0)] = 0
    """Replicas kept without a request. None frees the GPUs, and the first request then waits for a node."""
    max: Annotated[int, Field(ge=1, le=1000)] = 1
    """Replicas at most."""
    idle: Delay = 10
    """Time without requests after which a replica above `min` ends."""

    @model_validator(mode="after")
    def _ordered(self) -> Replicas:
        if self.max < self.min:
            refuse([below_min("max", self.max, "min", self.min, at=("max",))])
        return self


class ServedModel(NamedModel):
    """A model that answers requests under its key. Each replica is a pod of its own, with its GPUs."""

    model: Annotated[str, Matching(r"^[\w.-]+$", "the name of a model, such as qwen3-0.6b", 100)]
    """Model whose shape this is; `./inv serve.plan` knows the same names."""
    pools: Annotated[tuple[str, ...], Field(min_length=1, max_length=8), Distinct()]
    """GPU pools that may hold a replica."""
    checkpoint: (
        Annotated[
            str,
            Matching(r"^(?!.*(^|/)\.{1,2}(/|$))[\w.-]+(/[\w.-]+)*$", "a folder in the claim, such as qwen3-0.6b"),
        ]
        | None
    ) = None
    """Folder of the weights below the claim `weights`. Without one they are random, which is good for a rehearsal."""
    dtype: Literal["fp32", "fp16", "bf16", "int8", "int4"] | None = None
    """Format of the weights; by default bf16, or fp16 on GPUs without bf16."""
    tensor_parallel: Annotated[int, Field(ge=1, le=MOST_GPUS)] = 1
    """GPUs of a replica, which share its weights and are all of one node. It must divide the model's heads."""
    replicas: Replicas = Replicas()
    """Number of replicas."""
    context: Annotated[int, Field(ge=64, le=10_000_000)] = 4096
    """Tokens of one request, prompt and answer."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 4
    """Requests that a replica answers at once."""
    queue: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Requests that may wait for the model; more get 503."""
    mode: Literal["conservative", "default", "aggressive"] = "aggressive"
    """Resource mode: how much of a GPU's memory and time a replica takes (docs/bench-modes.md)."""


class Redis(Model):
    """Store in which Ray's head keeps what it knows, so that a new head finds the cluster as it was."""

    address: Annotated[
        str,
        Matching(
            r"^rediss://[A-Za-z0-9.-]+:\d{1,5}$",
            "rediss://HOST:PORT, which is encrypted",
            fix="such as rediss://master.ray.abc123.usw2.cache.amazonaws.com:6379, an ElastiCache with encryption in "
            "transit and without cluster mode",
        ),
    ]
    """Address of a Redis with TLS, `rediss://HOST:PORT`. Paddock makes none."""
    password: SecretSource = IN_CONFIG
    """Place of its password: `config` is the Pulumi secret `paddock:redisPassword`."""

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


class Head(Model):
    """Ray's head, with the scheduler of replicas and the gateway. It runs on nodes without GPUs."""

    cpu: Cpu = 1000
    """Request."""
    memory: Memory = 4 * 1024
    """Request and limit."""


class ServingLimits(Model):
    """Limits of what clients may ask, which the gateway keeps. A user is an API key."""

    body: Annotated[Memory, Field(ge=1, le=1024)] = 4
    """Largest body of a request; more gets 413."""
    tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most tokens of an answer; a request for more gets 400. By default the model's context alone limits it."""
    user_requests: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Requests of one user at once; more get 429. By default only the models' queues limit them."""
    user_requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Requests that one user may begin within a minute; more get 429."""


class Serving(Model):
    """OpenAI-compatible serving of models, by Ray Serve in the cluster (KubeRay)."""

    image: Image
    """Image of head and workers with Ray and Paddock in it; Paddock publishes none."""
    models: Annotated[dict[Name, ServedModel], Field(min_length=1), AfterValidator(with_names)]
    """Models by the name that requests call them by."""
    weights: KubernetesName | None = None
    """Persistent volume claim in the namespace `serving`, with the checkpoints; mounted read-only at `/models`."""
    api_keys: SecretSource = IN_CONFIG
    """Place of the API keys, a line each: `config` is the Pulumi secret `paddock:servingKeys`, `kubernetes:NAME` a
    secret with the key `keys`."""
    ray_token: SecretSource = IN_CONFIG
    """Place of the token that every process of Ray must show: `config` is the Pulumi secret `paddock:rayToken`,
    `kubernetes:NAME` a secret with the key `auth_token`."""
    redis: Redis | None = None
    """Store of the head's state. Without one a head that restarts begins anew, and with it every replica."""
    clients: Annotated[tuple[KubernetesName, ...], Distinct()] = ()
    """Namespaces whose pods may send requests; by default none may."""
    limits: ServingLimits = ServingLimits()
    """Limits of what clients may ask."""
    head: Head = Head()
    """Ray's head."""
    upgrade: Literal["new-cluster", "none"] = "new-cluster"
    """Change of pods while requests run. `new-cluster` starts a second cluster first, which takes GPUs twice; with
    `none` KubeRay ignores a change until the RayService is deleted."""

    @property
    def config_secrets(self) -> tuple[str, ...]:
        """Full keys of the Pulumi secrets that it takes."""
        sources = {"paddock:servingKeys": self.api_keys, "paddock:rayToken": self.ray_token}
        if self.redis:
            sources["paddock:redisPassword"] = self.redis.password
        return tuple(key for key, source in sources.items() if source == IN_CONFIG)
