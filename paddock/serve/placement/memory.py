"""Memory that a model takes on each of its devices, by part.

The sizes are those of `paddock.bench`: its shapes, and its admission with a tenth on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from paddock.bench.engine.shapes import Shape, cache_element
from paddock.bench.modes.admission import Demand
from paddock.serve.placement.device import Device
from paddock.serve.placement.request import Policy, Request

MIB = 2**20

FORMULAS: Mapping[str, str] = MappingProxyType(
    {
        "weights": "bits of a weight x weights of the layers / degree; output head and embedding whole on each device"
        " (paddock.bench.engine.shapes.Shape.loaded_bytes)",
        "cache": "2 x layers x key-value heads / degree x head dimension x bytes of a number x context x concurrency"
        " (paddock.bench.engine.shapes.Shape.cache_bytes)",
        "activations": "a tenth of weights and cache, for activations, the backend's context and fragments"
        " (paddock.bench.modes.admission)",
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
    shape, dtype = request.shape, request.dtype_on(device)
    weights = stage_weights(shape, dtype, layers) if layers else shape.loaded_bytes(dtype, degree)
    if layers:
        shape = replace(shape, layers=layers.count)
    token = shape.cache_bytes(cache_element(dtype, processor=device.backend == "cpu"), degree)
    demand = Demand(weights, token, request.concurrency, request.context, dtype)
    cache = request.concurrency * request.context * token
    reserve = round(policy.reserve * (device.memory_mib or 0) * MIB)
    return MemoryUse(weights, cache, demand.needed - weights - cache, reserve)


def stage_weights(shape: Shape, dtype: str, layers: Layers) -> int:
    """Return the bytes of a stage's weights: its layers, with the embedding or the head that belongs to it."""
    head = replace(shape, layers=0).weight_bytes(dtype)
    embedding = replace(shape, layers=0, tied=False).loaded_bytes(dtype) - head
    body = replace(shape, layers=layers.count).weight_bytes(dtype) - head
    return body + (embedding if layers.first else 0) + (head if layers.last else 0)
