"""Models that are served on the fleet's GPUs, by Ray on Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from pydantic_core import InitErrorDetails

from paddock.fleet.model.base import (
    Distinct,
    KubernetesName,
    Matching,
    Model,
    NamedModel,
    below_min,
    mistake,
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
            refuse([below_min(self.max, self.min, at=("max",))])
        return self


_PACKED = {
    "int8": "write quantization: int8_per_channel_weight_only",
    "int4": "write quantization: awq, and a checkpoint that is quantised so",
}
"""What replaces the formats that Paddock's own engine packed weights into."""


def _old_settings(data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
    """Yield what Paddock's own engine took, each with its successor."""
    if isinstance(dtype := data.get("dtype"), str) and dtype in _PACKED:
        expected = "fp32, fp16 or bf16; and quantization, a method of vLLM's"
        yield mistake(f"vLLM quantises no weights to {dtype} by dtype", "dtype", expected, _PACKED[dtype])
    if "queue" in data:
        message = "the queue is one of the gateway's limits, for all models alike"
        yield mistake(message, "queue", "serving.limits.queue", "move it there")


class ServedModel(NamedModel):
    """A model that answers requests under its key, by vLLM. Each replica is a pod of its own, with its GPUs."""

    model: Annotated[str, Matching(r"^[\w.-]+$", "the name of a model, such as qwen3-0.6b", 100)]
    """Model whose shape this is; `./inv serve.plan` knows the same names."""
    pools: Annotated[tuple[str, ...], Field(min_length=1, max_length=8), Distinct()]
    """GPU pools that may hold a replica."""
    checkpoint: Annotated[
        str,
        Matching(
            r"^(?!.*(^|/)\.{1,2}(/|$))[\w.-]+(/[\w.-]+)*$",
            "a folder in the claim, such as qwen3-0.6b",
            fix="no replica reaches a hub: download it into the claim once (docs/serve-kubernetes.md, The weights)",
        ),
    ]
    """Folder of the weights below the claim `weights`, as Hugging Face lays a model out."""
    dtype: Literal["fp32", "fp16", "bf16"] | None = None
    """Format that computes; by default bf16, or fp16 on GPUs without bf16."""
    quantization: Annotated[str, Matching(r"^[a-z0-9_-]+$", "one of vLLM's methods, such as fp8 or awq", 60)] | None = (
        None
    )
    """vLLM's method for quantised weights: of a checkpoint that has them, `awq` for example, or `fp8` and
    `int8_per_channel_weight_only`, which quantise while they load."""
    tensor_parallel: Annotated[int, Field(ge=1, le=MOST_GPUS)] = 1
    """GPUs of a replica, which share its weights and are all of one node. It must divide the model's heads."""
    replicas: Replicas = Replicas()
    """Number of replicas."""
    context: Annotated[int, Field(ge=64, le=10_000_000)] = 4096
    """Tokens of one request, prompt and answer."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 4
    """Requests that a replica answers at once."""
    mode: Literal["conservative", "default", "aggressive"] = "aggressive"
    """Resource mode: the part of a GPU's memory that a replica takes, and the pauses of the gateway."""
    engine_args: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = {}
    """More arguments of vLLM, by its own names, such as `enable_prefix_caching: true`; they are checked against the
    list of the version in Ray's image."""

    @model_validator(mode="before")
    @classmethod
    def _replaced(cls, data: Any) -> Any:
        if isinstance(data, dict):
            refuse(_old_settings(data))
        return data


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
    """Ray's head, with Ray Serve's controller and the routers before the models. It runs on nodes without GPUs."""

    cpu: Cpu = 1000
    """Request."""
    memory: Memory = 4 * 1024
    """Request and limit."""


class Gateway(Model):
    """Gateway before Ray Serve, which has no keys and no limits. It runs on nodes without GPUs."""

    image: Image
    """Image that `./inv images.build gateway --push` makes; by digest."""
    replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Pods. Each keeps its part of the limits: numbers are divided by the pods, and rounded up."""
    cpu: Cpu = 500
    """Request of a pod."""
    memory: Memory = 512
    """Request and limit of a pod."""


class ServingLimits(Model):
    """Limits of what clients may ask, which the gateway keeps. A user is an API key."""

    body: Annotated[Memory, Field(ge=1, le=1024)] = 4
    """Largest body of a request; more gets 413."""
    tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most tokens of an answer; a request for more gets 400. By default the model's context alone limits it."""
    queue: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Requests that may wait for a model; more get 503."""
    user_requests: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Requests of one user at once; more get 429. By default only the models' queues limit them."""
    user_requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Requests that one user may begin within a minute; more get 429."""


class Serving(Model):
    """OpenAI-compatible serving of models: vLLM by Ray Serve LLM in the cluster (KubeRay), behind Paddock's gateway."""

    gateway: Gateway
    """Gateway that answers clients."""
    models: Annotated[dict[Name, ServedModel], Field(min_length=1), AfterValidator(with_names)]
    """Models by the name that requests call them by."""
    weights: KubernetesName
    """Persistent volume claim in the namespace `serving`, with the checkpoints; mounted read-only at `/models`."""
    image: Image | None = None
    """Image of head and workers, with Ray and vLLM; by default Ray's own of the pinned version."""
    api_keys: SecretSource = IN_CONFIG
    """Place of the API keys, a line each: `config` is the Pulumi secret `paddock:servingKeys`, `kubernetes:NAME` a
    secret with the key `keys`."""
    ray_token: SecretSource = IN_CONFIG
    """Place of the token that every process of Ray must show: `config` is the Pulumi secret `paddock:rayToken`,
    `kubernetes:NAME` a secret with the key `auth_token`."""
    redis: Redis | None = None
    """Store of the head's state. Without one a head that restarts starts from scratch, and with it every replica."""
    clients: Annotated[tuple[KubernetesName, ...], Distinct()] = ()
    """Namespaces whose pods may send requests to the gateway; by default none may."""
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
