"""Matrix products of small integers: exact in every format, so one wrong digit shows, and fast enough to measure."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from paddock.smoke.workers.device import Device, Kind, dtype, open_device

_SEED = 20261123
_DENSITY = 16
"""One number in so many is -1 or 1, the others are 0. Of the 8192 terms of a sum about 32 are then not 0, so its
standard deviation is below 6, and the sums of more than 256 that bfloat16 would round do not occur."""


def run(device: Kind, precision: str, size: int, warm_up: int, repeats: int) -> dict[str, Any]:
    """Multiply matrices of `size` rows and columns."""
    return measure(open_device(device), precision, size, warm_up, repeats)


def measure(device: Device, precision: str, size: int, warm_up: int, repeats: int) -> dict[str, Any]:
    """Return TFLOP/s, whether the product is right, and its checksum."""
    left, right = (matrix.to(device.torch, dtype(precision)) for matrix in operands(size))
    seconds = device.median_seconds(lambda: left @ right, warm_up=warm_up, repeats=repeats)
    product = (left @ right).to("cpu", torch.float32)
    return {
        "precision": precision,
        "size": size,
        "tflops": 2 * size**3 / seconds / 1e12,
        "wrong": wrong_columns(product, *operands(size)),
        "checksum": checksum(product),
    }


def operands(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two matrices, always the same ones, made by the processor."""
    generator = torch.Generator().manual_seed(_SEED)
    draws = torch.randint(0, 2 * _DENSITY, (2, size, size), generator=generator, dtype=torch.int8)
    left, right = ((draws == 0).to(torch.float32) - (draws == 1).to(torch.float32)).unbind()
    return left, right


def wrong_columns(product: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> int:
    """Return how many columns have a wrong sum: sums of a product are known from those of its operands (Freivalds).

    float32 holds all of these integers exactly. NaN is wrong too.
    """
    expected = left.sum(0, dtype=torch.float64) @ right.to(torch.float64)
    return int((product.sum(0, dtype=torch.float64) != expected).sum())


def checksum(product: torch.Tensor) -> str:
    return hashlib.sha256(product.contiguous().numpy().tobytes()).hexdigest()[:16]
