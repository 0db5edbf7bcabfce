"""Memory that a model needs, before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.bench.engine.shapes import BITS, Shape
from paddock.bench.errors import BenchInputError

_MARGIN = 1.1
"""Weights and cache over all memory that a model takes: activations, workspaces and the library's own are a tenth."""
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one device: all, and free now."""

    total: int
    free: int

    def limit(self, fraction: float) -> float:
        """Return the bytes that a mode's part of the memory allows."""
        return min(self.total * fraction, self.free)


def needed_bytes(shape: Shape, dtype: str, batch: int, length: int, *, element: int, tp: int = 1) -> int:
    """Return the bytes on each device: the largest of loading and of running, and a tenth more.

    Weights are packed from 16 bits layer by layer, so loading takes those of 16 bits.
    """
    loading = shape.loaded_bytes("fp32" if dtype == "fp32" else "bf16")
    running = shape.loaded_bytes(dtype, tp) + batch * length * shape.cache_bytes(element, tp)
    return round(max(loading, running) * _MARGIN)


def admit(
    shape: Shape, dtype: str, batch: int, length: int, memory: Memory, *, element: int, tp: int, fraction: float
) -> None:
    """Raise BenchInputError, with what would fit, where the memory does not hold the model."""
    limit = memory.limit(fraction)
    need = needed_bytes(shape, dtype, batch, length, element=element, tp=tp)
    if need <= limit:
        return
    fits = [
        name
        for name in sorted(BITS, key=lambda name: -BITS[name])
        if BITS[name] < BITS[dtype] and needed_bytes(shape, name, batch, length, element=element, tp=tp) <= limit
    ]
    fix = "a smaller --model or --prompt"
    smallest = needed_bytes(shape, dtype, 1, length, element=element, tp=tp)
    if smallest <= limit:
        token = length * shape.cache_bytes(element, tp) * _MARGIN
        largest = 1 + int((limit - smallest) / token) if token else batch
        fix = f"--batch {max(1, min(largest, batch - 1))}, the largest that fits"
    elif fits:
        fix = f"--dtype {fits[0]}, which fits"
    part = f"{fraction:.0%} of {memory.total / _GB:.1f} GB, {memory.free / _GB:.1f} GB of it free"
    raise BenchInputError(
        f"{shape.name} in {dtype} at batch {batch} and {length} tokens needs {need / _GB:.1f} GB of memory\n"
        f"    expected: at most {limit / _GB:.1f} GB ({part})\n    fix: {fix}"
    )
