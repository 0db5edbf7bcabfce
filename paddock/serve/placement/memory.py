"""Memory that a model takes on each of its devices, by part.

The sizes are those of `paddock.models`, with the tenth on top of the admission of `paddock.modes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paddock.models.model import Model
from paddock.modes.admission import OVERHEAD
from paddock.serve.placement.device import Device
from paddock.serve.placement.engines import QUANTISATIONS, engine_of, format_on
from paddock.serve.placement.request import Policy, Request

MIB = 2**20
_ELEMENT = 2
"""Bytes of a number in the cache: f16 is llama.cpp's default (--cache-type-k), 16 bits are vLLM's."""

FORMULAS: Mapping[str, str] = MappingProxyType(
    {
        "weights": "bits of a weight x weights of the layers / degree, all experts among them; what is in no layer"
        " whole on each device; bytes of the file where it stays as it is (paddock.models.model.Model.file_bytes)",
        "cache": "sum over layers of numbers of a token x tokens, at most the layer's window, x 2 bytes x concurrency;"
        " 2 x key-value heads x head dimension numbers a token with full attention; over the degree with vllm, on the"
        " first device with llama.cpp (paddock.models.model.Model.cache_bytes)",
        "activations": "a tenth of weights and cache, for activations, the backend's context and fragments"
        " (paddock.modes.admission)",
        "reserve": "the policy's part of the device's memory, which is left to others",
    }
)


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes on one device by part."""

    weights: int
    cache: int
    activations: int
    reserve: int

    @property
    def needed(self) -> int:
        return self.weights + self.cache + self.activations


def memory_use(request: Request, device: Device, policy: Policy, degree: int = 1, *, first: bool = True) -> MemoryUse:
    """Return the memory of one device of so many that share the model; `first` is llama.cpp's main one.

    Its --split-mode row leaves the cache there (tools/server/README.md, --main-gpu).
    """
    model, dtype = request.model, format_on(request, device, policy)
    if engine_of(model, policy) == "vllm":
        weights = _vllm(request, policy, dtype, degree)
        element = 4 if dtype == "fp32" else _ELEMENT
        cache = model.cache_bytes(request.context, element, request.concurrency, degree)
    else:
        weights = _stored(model, degree) if dtype == model.format else model.file_bytes(dtype, degree)
        cache = model.cache_bytes(request.context, _ELEMENT, request.concurrency) if first else 0
    reserve = round(policy.reserve * (device.memory_mib or 0) * MIB)
    return MemoryUse(weights, cache, int((weights + cache) * OVERHEAD) - weights - cache, reserve)


def _stored(model: Model, degree: int) -> int:
    return round(model.body.bytes / degree) + (model.embedding + model.head + model.rest).bytes


def _vllm(request: Request, policy: Policy, dtype: str, degree: int) -> int:
    """Return the bytes on each device of what vLLM loads: what it packs are the layers alone."""
    model, bits = request.model, QUANTISATIONS.get(policy.quantization)
    if bits is None or model.quantised:
        return model.loaded_bytes(dtype, degree)
    outer = (0 if model.tied else model.head.parameters) + model.embedding.parameters + model.rest.parameters
    return round(model.body.parameters / degree * bits / 8) + outer * 2
