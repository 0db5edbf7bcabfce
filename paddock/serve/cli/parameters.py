"""Flags of the commands of serving."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from paddock.errors import did_you_mean
from paddock.gpu.parameter import JSON, Parameters, parameter
from paddock.serve.admission.limits import MIB, MOST_TOKENS, Limits
from paddock.serve.errors import ServeInputError

ENGINES = ("paddock", "vllm")


@dataclass(frozen=True, kw_only=True)
class ServePlan(Parameters):
    """Flags of `serve.plan`."""

    model_name: str = parameter(
        ..., "a model by name (qwen3-0.6b, llama-3.1-8b), a checkpoint's folder, or a .gguf file", flag="model"
    )
    dtype: str = parameter("", "format of the weights: fp32, fp16, bf16, int8, int4; by default 16 bits")
    backend: str = parameter("", "cuda, rocm, metal or cpu; by default the one with most devices")
    context: int | None = parameter(None, "tokens of one request, prompt and answer; by default 4096, or all it can")
    concurrency: int | None = parameter(None, "requests at once; by default 4, or what the mode allows")
    reserve: float | None = parameter(
        None, "part of each device's memory that stays to others, 0 to 0.95; by default 0.05, or what the mode leaves"
    )
    mode: str = parameter("", "the resource mode of serve.load: conservative, default, aggressive, or a policy's file")
    tp: int | None = parameter(None, "most devices that share the weights; by default as many as are equal")
    across_agents: bool = parameter(False, "let equal devices of several machines share the weights")
    pipeline: bool = parameter(False, "experimental: where no backend holds the model, split its layers over two")
    cluster: bool = parameter(False, "plan for the cluster whose head runs here, as it is now")
    devices: Path | None = parameter(None, "plan for the devices of this file instead of this machine's")
    inventories: tuple[str, ...] = parameter(
        (), "plan for saved inventories (gpu.list --json) instead of this machine", flag="from"
    )
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Up(Parameters):
    """Flags of `serve.up`."""

    port: int = parameter(6379, "port for agents")
    http_port: int = parameter(8000, "port of the OpenAI-compatible interface")
    http_host: str = parameter(
        "127.0.0.1", "address on which that interface listens; one that others reach, such as 0.0.0.0, needs API keys"
    )
    dashboard: int | None = parameter(None, "port of Ray's dashboard, on loopback; by default there is none")
    queue: int = parameter(64, "requests that may wait for a model; more get 503")
    user_in_flight: int | None = parameter(None, "requests of one user at once; more get 429")
    user_per_minute: int | None = parameter(None, "requests that one user may begin within a minute; more get 429")
    body_mib: int = parameter(4, "largest body of a request, in MiB; more gets 413")
    max_tokens: int | None = parameter(None, "most tokens of an answer; a request for more gets 400")
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
            ("--max-tokens", self.max_tokens, 1),
        ):  # fmt: skip
            if number is not None and number < lowest:
                raise ServeInputError(f"{flag} {number} makes no sense\n    expected: {lowest} or more")
        tokens = min(MOST_TOKENS, self.max_tokens or MOST_TOKENS)
        return Limits(self.queue, self.user_in_flight, self.user_per_minute, self.body_mib * MIB, tokens)

    def check_host(self, keys: Collection[str]) -> None:
        """Check that an interface which others reach has keys. Raises ServeInputError."""
        try:
            address = ipaddress.ip_address(self.http_host)
        except ValueError:
            raise ServeInputError(
                f"--http-host: {self.http_host!r} is no address"
                "\n    expected: 127.0.0.1, 0.0.0.0, or one of this machine"
            ) from None
        if not address.is_loopback and not keys:
            raise ServeInputError(
                f"--http-host {address}: other machines reach it, and there are no API keys"
                "\n    expected: --key-file with keys, or PADDOCK_SERVE_KEYS\n    fix: --http-host 127.0.0.1 stays here"
            )


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
    engine: str = parameter("paddock", "paddock, or vllm, which an environment of its own has (--python)")
    python: str = parameter("", "with --engine vllm: the Python of its environment, on each machine that may get it")
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
    wait: bool = parameter(False, "return when the model serves, has failed, or --deadline is over")
    deadline: int = parameter(600, "seconds in which the model must be loaded, each time that it is placed")
    json: str | None = parameter(None, JSON.help, flag=JSON)

    def check(self) -> None:
        """Check the flags by themselves. Raises ServeInputError."""
        if self.deadline < 1:
            raise ServeInputError(f"--deadline {self.deadline} makes no sense\n    expected: 1 or more seconds")
        self.check_url()
        self.check_engine()

    def check_engine(self) -> None:
        """Check that the flags suit the engine. Raises ServeInputError."""
        if self.engine not in ENGINES:
            hint = did_you_mean(self.engine, ENGINES, f"one of {', '.join(ENGINES)}")
            raise ServeInputError(f"--engine: there is no engine {self.engine!r}\n    expected: {hint}")
        if self.engine != "vllm":
            if self.python:
                raise ServeInputError("--python is that of another engine\n    expected: --engine vllm with it")
            return
        if not PurePosixPath(self.python).is_absolute():
            raise ServeInputError(
                f"--python: {self.python!r} is no path from the root, and other machines look there, too"
                "\n    expected: the Python of vLLM's environment, such as /opt/vllm/bin/python"
            )
        for flag, wrong, why in (
            ("--tp", (self.tp or 1) > 1, "it runs on one device here"),
            ("--across-agents", self.across_agents, "it runs on one device here"),
            ("--pipeline", self.pipeline, "it runs on one device here"),
            ("--dtype", self.dtype in ("int8", "int4"), "it packs no weights itself"),
            ("--backend", self.backend == "metal", "it has no Metal; --url takes a server that has"),
        ):
            if wrong:
                raise ServeInputError(f"{flag} does not go with --engine vllm: {why}\n    expected: without {flag}")

    def check_url(self) -> None:
        """Check that the flags go together. Raises ServeInputError."""
        if not self.url:
            if self.key_file is not None:
                raise ServeInputError("--key-file is that of an endpoint\n    expected: --url with its address")
            return
        wrong = sorted(self.changed() - {"model_name", "url", "key_file", "concurrency", "wait", "json"})
        if wrong:
            flag = wrong[0].replace("_", "-")
            raise ServeInputError(
                f"--{flag} places a model, and --url places none\n"
                "    expected: with --url only --key-file, --concurrency, --wait and --json"
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
