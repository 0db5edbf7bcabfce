"""Weights as integers: int8 with a scale a row, int4 with scale and zero a group of 64 columns.

The plain form is the same for every device; each device packs it as its kernels read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

GROUP = 64
"""Columns of a row that share an int4 scale and zero: 4.5 bits a weight with both in bf16."""
_BLOCK = 1 << 20
"""Numbers that are quantised at a time."""
Scheme = Literal["int8", "int4"]


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """`values` [n, k] int8 times `scale` [n] fp32 is the weight."""

    values: torch.Tensor
    scale: torch.Tensor

    def dequantise(self) -> torch.Tensor:
        """Return the weight, [n, k] fp32."""
        return self.values.float() * self.scale[:, None]


@dataclass(frozen=True, slots=True)
class Int4Weight:
    """`values` [n, k] of 0 to 15 times `scale` plus `zero`, both [n, k / 64] bf16, is the weight."""

    values: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor

    def dequantise(self) -> torch.Tensor:
        """Return the weight, [n, k] fp32."""
        n, k = self.values.shape
        groups = self.values.view(n, k // GROUP, GROUP).float()
        return (groups * self.scale.float()[..., None] + self.zero.float()[..., None]).view(n, k)


def int8(weight: torch.Tensor) -> Int8Weight:
    """Quantise a weight [n, k]: the largest value of each row becomes 127."""
    result = Int8Weight(
        torch.empty_like(weight, dtype=torch.int8), torch.empty(len(weight), dtype=torch.float32, device=weight.device)
    )
    for source, values, scale in _blocks(weight, result.values, result.scale):
        rows = source.float()
        low, high = rows.aminmax(dim=1)
        scale.copy_(torch.maximum(-low, high).clamp(min=1e-12) / 127)
        rows = rows * (1 / scale)[:, None]
        values.copy_(rows.round_().clamp_(-127, 127))
    return result


def int4(weight: torch.Tensor) -> Int4Weight:
    """Quantise a weight [n, k]: each group's range becomes 0 to 15. Raises ValueError unless 64 divides k."""
    n, k = weight.shape
    if k % GROUP:
        raise ValueError(f"int4 needs rows of a multiple of {GROUP} columns, not {k}")
    scales = torch.empty(2, n, k // GROUP, dtype=torch.bfloat16, device=weight.device)
    result = Int4Weight(torch.empty_like(weight, dtype=torch.uint8), *scales)
    for source, values, scale, zero in _blocks(weight, result.values, result.scale, result.zero):
        groups = source.float().view(len(source), k // GROUP, GROUP)
        low, high = groups.aminmax(dim=-1)
        scale.copy_((high - low).clamp(min=1e-12) / 15)
        zero.copy_(low)
        steps = (groups - zero.float()[..., None]).mul_((1 / scale.float())[..., None])
        values.copy_(steps.round_().clamp_(0, 15).view(len(source), k))
    return result


def _blocks(weight: torch.Tensor, *results: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield the weight and its results some rows at a time: their fp32 numbers take little memory then."""
    rows = max(1, _BLOCK // weight.shape[1])
    yield from zip(*(tensor.detach().split(rows) for tensor in (weight, *results)), strict=True)
