"""Flags of the commands of serving."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.parameter import JSON, Parameters, parameter
from paddock.serve.admission.limits import MIB, Limits
from paddock.serve.errors import ServeInputError


@dataclass(frozen=True, kw_only=True)
class ServePlan(Parameters):
    """Flags of `serve.plan`."""

    model_name: str = parameter(
        ..., "a model by name (qwen3-0.6b, llama-3.1-8b), a checkpoint's folder, or a .gguf file", flag="model"
    )
    dtype: str = parameter("", "format of the weights: fp32, fp16, bf16, int8, int4; by default 16 bits")
    backend: str = parameter("", "cuda, rocm, metal or cpu; by default the one with most devices")
    context: int | None = parameter(None, "tokens of one request, prompt and answer; by default 4096, or all it can")
    concurrency: int = parameter(4, "requests at once")
    reserve: float = parameter(0.05, "part of each device's memory that stays to others, 0 to 0.95")
    tp: int | None = parameter(None, "most devices that share the weights; by default as many as are equal")
    across_agents: bool = parameter(False, "let equal devices of several machines share the weights")
    pipeline: bool = parameter(False, "experimental: where no backend holds the model, split its layers over two")
    devices: Path | None = parameter(None, "plan for the devices of this file instead of this machine's")
    inventories: tuple[str, ...] = parameter(
        (), "plan for saved inventories (gpu.list --json) instead of this machine", flag="from"
    )
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Up(Parameters):
    """Flags of `serve.up`."""

    port: int = parameter(6379, "port for agents")
    http_port: int = parameter(8000, "port of the OpenAI-compatible interface, on loopback")
    queue: int = parameter(64, "requests that may wait for a model; more get 503")
    user_in_flight: int | None = parameter(None, "requests of one user at once; more get 429")
    user_per_minute: int | None = parameter(None, "requests that one user may begin within a minute; more get 429")
    body_mib: int = parameter(4, "largest body of a request, in MiB; more gets 413")
    key_file: Path | None = parameter(
        None, "API keys, a line each, else PADDOCK_SERVE_KEYS; without keys everybody on this machine may ask"
    )
    devices: Path | None = parameter(None, "rehearse: report this file's devices, and compute on the processor")
    json: str | None = parameter(None, JSON.help, flag=JSON)

    def limits(self) -> Limits:
        """Return the limits of the gateway. Raises ServeInputError."""
        for flag, number, lowest in (
            ("--queue", self.queue, 0), ("--body-mib", self.body_mib, 1),
            ("--user-in-flight", self.user_in_flight, 1), ("--user-per-minute", self.user_per_minute, 1),
        ):  # fmt: skip
            if number is not None and number < lowest:
                raise ServeInputError(f"{flag} {number} makes no sense\n    expected: {lowest} or more")
        return Limits(self.queue, self.user_in_flight, self.user_per_minute, self.body_mib * MIB)


@dataclass(frozen=True, kw_only=True)
class Join(Parameters):
    """Flags of `serve.join`."""

    address: str = parameter(..., "the head's address, as serve.up prints it")
    token_file: Path | None = parameter(None, "the head's token, by default this user's own")
    name: str = parameter("", "name of the agent, by default the machine's")
    devices: Path | None = parameter(None, "rehearse: report this file's devices, and compute on the processor")
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Load(Parameters):
    """Flags of `serve.load`."""

    model_name: str = parameter(
        ...,
        "a model by name (qwen3-0.6b), or a checkpoint's folder; with --url the endpoint's name of it",
        flag="model",
    )
    url: str = parameter("", "an OpenAI-compatible endpoint that has the model: nothing is placed, requests go there")
    key_file: Path | None = parameter(None, "with --url: the file with the endpoint's API key, read for every request")
    dtype: str = parameter("", "format of the weights: fp32, fp16, bf16, int8, int4; by default 16 bits")
    backend: str = parameter("", "cuda, rocm, metal or cpu; by default the one with most devices")
    context: int | None = parameter(None, "tokens of one request, prompt and answer; by default 4096, or all it can")
    tp: int | None = parameter(None, "most devices that share the weights; by default as many as are equal")
    across_agents: bool = parameter(False, "let equal devices of several machines share the weights")
    pipeline: bool = parameter(False, "experimental: where no backend holds the model, split its layers over two")
    concurrency: int | None = parameter(
        None, "requests that are answered side by side; by default 4, or what the mode allows"
    )
    mode: str = parameter(
        "", "conservative, default, aggressive, or a policy's file; by default PADDOCK_DEPLOYMENT_MODE, or aggressive"
    )
    pending: bool = parameter(False, "where it fits nowhere yet, keep it until a machine joins that holds it")
    wait: bool = parameter(False, "return when the model serves, or has failed")
    json: str | None = parameter(None, JSON.help, flag=JSON)

    def check_url(self) -> None:
        """Check that the flags go together. Raises ServeInputError."""
        if not self.url:
            if self.key_file is not None:
                raise ServeInputError("--key-file is that of an endpoint\n    expected: --url with its address")
            return
        wrong = sorted(self.specified - {"model_name", "url", "key_file", "concurrency", "wait", "json"})
        if wrong:
            flag = wrong[0].replace("_", "-")
            raise ServeInputError(
                f"--{flag} places a model, and --url places none\n"
                "    expected: with --url only --key-file, --concurrency and --json"
            )
        if self.concurrency is not None and self.concurrency < 1:
            raise ServeInputError(f"--concurrency {self.concurrency} makes no sense\n    expected: 1 or more")


@dataclass(frozen=True, kw_only=True)
class Instance(Parameters):
    """Flags of a command on one instance."""

    id: str = parameter(..., "the instance, as serve.models shows it")
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Infer(Parameters):
    """Flags of `serve.infer`."""

    id: str = parameter(..., "the instance, as serve.models shows it")
    prompt: str = parameter(..., "text to go on from")
    max_tokens: int = parameter(64, "most tokens of the answer")
    key_file: Path | None = parameter(None, "the file with the API key, else PADDOCK_SERVE_KEYS")
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Show(Parameters):
    """Flags of a command that only shows or ends."""

    json: str | None = parameter(None, JSON.help, flag=JSON)
