"""Flags of the commands of serving."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.parameter import JSON, Parameters, parameter


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
    pipeline: bool = parameter(False, "experimental: where no backend holds the model, split it over two")
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
    key_file: Path | None = parameter(None, "API keys, a line each; without one everybody on this machine may ask")
    devices: Path | None = parameter(None, "rehearse: report this file's devices, and compute on the processor")
    json: str | None = parameter(None, JSON.help, flag=JSON)


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

    model_name: str = parameter(..., "a model by name (qwen3-0.6b), or a checkpoint's folder", flag="model")
    dtype: str = parameter("", "format of the weights: fp32, fp16, bf16, int8, int4; by default 16 bits")
    backend: str = parameter("", "cuda, rocm, metal or cpu; by default the one with most devices")
    context: int | None = parameter(None, "tokens of one request, prompt and answer; by default 4096, or all it can")
    wait: bool = parameter(False, "return when the model serves, or has failed")
    json: str | None = parameter(None, JSON.help, flag=JSON)


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
    key_file: Path | None = parameter(None, "the file with the API key")
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Show(Parameters):
    """Flags of a command that only shows or ends."""

    json: str | None = parameter(None, JSON.help, flag=JSON)
