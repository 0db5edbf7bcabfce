"""Admission of a model before it is loaded: does it fit into the part of the memory that it may take?

    needed = (weights + batch x tokens x cache of a token) x 1.1
    needed <= fraction x total, and needed <= free

The tenth on top is for activations, the CUDA context and fragments. A cap on torch's allocator alone would notice too
late, after minutes of loading, and sees neither the context nor other processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from paddock.modes.config import ResourceConfig
from paddock.modes.errors import ModeError

OVERHEAD = 1.1
_GIB = 1 << 30


class DoesNotFit(ModeError):
    """The model takes more memory than it may; nothing was loaded."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Demand:
    """Memory of a model, in bytes. `tokens` are prompt and output of one sequence."""

    weights: int
    cache_per_token: int
    batch: int
    tokens: int
    dtype: str = ""
    other_dtypes: Mapping[str, int] = field(default_factory=dict)
    """Weights in bytes by the types that the model could be loaded in instead."""

    @property
    def needed(self) -> int:
        return int((self.weights + self.batch * self.tokens * self.cache_per_token) * OVERHEAD)


@dataclass(frozen=True, slots=True)
class Room:
    """Memory of a device, in bytes."""

    total: int
    free: int

    def allowed(self, config: ResourceConfig) -> int:
        """Return the bytes that a process may take."""
        return min(int(config.max_vram_usage_percent * self.total), self.free)


def admit(demand: Demand, room: Room, config: ResourceConfig) -> None:
    """Raise DoesNotFit where the memory is too small, with the numbers and what would fit."""
    allowed = room.allowed(config)
    if demand.needed <= allowed:
        return
    limit = config.max_vram_usage_percent * room.total
    why = f"{limit / _GIB:.1f} GiB are allowed ({config.max_vram_usage_percent:.0%} of {room.total / _GIB:.1f} GiB)"
    if room.free < limit:
        why = f"{room.free / _GIB:.1f} GiB are free, of {why}"
    cache = demand.batch * demand.tokens * demand.cache_per_token
    fits = "; ".join(alternatives(demand, allowed)) or "a smaller model, or a GPU with more memory"
    raise DoesNotFit(
        f"the model needs {demand.needed / _GIB:.1f} GiB: weights{f' in {demand.dtype}' * bool(demand.dtype)} "
        f"{demand.weights / _GIB:.1f}, cache of {demand.batch} x {demand.tokens} tokens {cache / _GIB:.1f}, and a tenth"
        f"\n    expected: at most what is there: {why}\n    fix: {fits}"
    )


def alternatives(demand: Demand, allowed: int) -> Iterator[str]:
    """Yield what would fit: the largest batch, the longest sequence, another type of weights."""
    if batch := largest_batch(demand, allowed):
        yield f"a batch of {batch}"
    elif demand.cache_per_token and (tokens := int(allowed / OVERHEAD - demand.weights) // demand.cache_per_token) > 0:
        yield f"{tokens} tokens at batch 1"
    for dtype, weights in sorted(demand.other_dtypes.items(), key=lambda item: -item[1]):
        if batch := largest_batch(replace(demand, weights=weights), allowed):
            yield f"{dtype} weights with a batch of {min(batch, demand.batch)}"


def largest_batch(demand: Demand, allowed: int) -> int:
    """Return the largest batch of these sequences that fits into so many bytes; 0 for none."""
    rest = int(allowed / OVERHEAD) - demand.weights
    sequence = demand.tokens * demand.cache_per_token
    return max(0, rest // sequence) if sequence else (demand.batch if rest >= 0 else 0)
