"""Engines: the models, devices and formats that each takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from paddock.models.model import Model
from paddock.models.presets import FACTS
from paddock.serve.placement.device import Backend, Device
from paddock.serve.placement.request import Engine, Policy, Request

PACKED = ("int8", "int4")
RANDOM_DTYPE = "int8"
"""Format of random weights where none is named (`paddock.models.local.files`)."""
VLLM_BACKENDS: tuple[Backend, ...] = ("cuda", "rocm")
QUANTISATIONS: Mapping[str, float] = MappingProxyType(
    {"fp8": 8, "experts_int8": 8, "int8_per_channel_weight_only": 8, "bitsandbytes": 4.5}
)
"""Bits of a weight by vLLM's --quantization, of those that pack plain weights as they load (vLLM 0.33,
docs/features/quantization; read 2026-11-27). AWQ, GPTQ and the like are a checkpoint's own, and need no flag."""
CONVERT = "python convert_hf_to_gguf.py FOLDER --outtype bf16 (llama.cpp's repository), or a .gguf file of the model"


def engine_of(model: Model, policy: Policy) -> Engine:
    """Return the policy's engine, else the one that takes the model's form: vLLM checkpoints, llama.cpp the rest."""
    return policy.engine or ("vllm" if model.facts not in ("file", FACTS) else "llama.cpp")


def why_engine(model: Model, policy: Policy) -> str:
    """Return the engine and why it is that one."""
    engine = engine_of(model, policy)
    if engine == "vllm":
        own = f", of {policy.python}" if policy.python else ""
        return f"vllm{own}: the model is a checkpoint's folder" if model.facts != FACTS else f"vllm{own}: it is named"
    own = f", by {policy.server}" if policy.server else ""
    if model.facts == "file":
        return f"llama.cpp{own}: the model is a .gguf file"
    return f"llama.cpp{own}: random weights are written as a .gguf file"


def refusal(request: Request, device: Device, policy: Policy) -> str:
    """Return why a device holds no part of the model, whatever its memory; empty where it may."""
    if device.unavailable:
        return device.unavailable
    engine = engine_of(request.model, policy)
    if engine == "vllm" and device.backend not in VLLM_BACKENDS:
        return "vLLM computes on CUDA and ROCm"
    if not (policy.python if engine == "vllm" else policy.server):
        for name, reason in device.without:
            if name == engine:
                return reason
    if engine == "vllm" and request.dtype in device.lacks:
        return f"computes no {request.dtype}"
    return ""


def format_on(request: Request, device: Device, policy: Policy) -> str:
    """Return the format of the weights with llama.cpp, with vLLM that in which they are multiplied."""
    model = request.model
    if engine_of(model, policy) == "llama.cpp":
        return request.dtype or (model.format if model.facts == "file" else RANDOM_DTYPE)
    if request.dtype:
        return request.dtype
    half = "fp16" if "fp16" in (model.plain, model.format) else "bf16"
    return "fp16" if half in device.lacks else half


def weights_in_words(request: Request, policy: Policy) -> str:
    """Return the format of the weights, as a reader says it."""
    model = request.model
    if policy.quantization:
        return policy.quantization
    if request.dtype:
        return request.dtype
    return RANDOM_DTYPE if model.facts == FACTS and engine_of(model, policy) == "llama.cpp" else model.format


def packs(request: Request) -> bool:
    """Return whether llama.cpp's file is packed before it is loaded: a file of 16 or 32 bits alone."""
    return request.model.facts == "file" and request.dtype in PACKED
