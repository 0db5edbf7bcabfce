"""Memory that a model takes on each of its devices, by part.

The sizes are those of `paddock.models`, with the tenth on top of the admission of `paddock.modes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paddock.models.shapes import cache_element
from paddock.modes.admission import OVERHEAD
from paddock.serve.placement.device import Device
from paddock.serve.placement.request import Policy, Request

MIB = 2**20

FORMULAS: Mapping[str, str] = MappingProxyType(
    {
        "weights": "bits of a weight x weights of the layers / degree, all experts among them; what is in no layer"
        " whole on each device; bytes of the file where they are quantised (paddock.models.model.Model.loaded_bytes)",
        "cache": "sum over layers of numbers of a token / degree x tokens, at most the layer's window, x bytes of a"
        " number x concurrency; 2 x key-value heads x head dimension numbers a token with full attention"
        " (paddock.models.model.Model.cache_bytes)",
        "activations": "a tenth of weights and cache, for activations, the backend's context and fragments"
        " (paddock.modes.admission)",
        "reserve": "the policy's part of the device's memory, which stays to others",
    }
)


@dataclass(frozen=True, slots=True)
class Layers:
    """Run of a model's layers, of one stage; the first holds the embedding, the last the output head."""

    count: int
    first: bool
    last: bool


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


def memory_use(
    request: Request, device: Device, policy: Policy, degree: int = 1, layers: Layers | None = None
) -> MemoryUse:
    """Return the memory of one device of so many that share the model, or that of a stage."""
    model, dtype = request.model, request.dtype_on(device)
    if layers:
        total = len(model.layers)
        model = model.stage(0, layers.count) if layers.first else model.stage(total - layers.count, total)
    weights = model.loaded_bytes(dtype, degree)
    element = cache_element(dtype, processor=device.backend == "cpu")
    cache = model.cache_bytes(request.context, element, request.concurrency, degree)
    reserve = round(policy.reserve * (device.memory_mib or 0) * MIB)
    return MemoryUse(weights, cache, int((weights + cache) * OVERHEAD) - weights - cache, reserve)
