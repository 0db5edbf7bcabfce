"""GEMMs of whole numbers: exact in every format, so one wrong digit shows, and dense ones for the speed."""

from __future__ import annotations

from typing import Any

from paddock.smoke.workers import operands
from paddock.smoke.workers.device import Array, ArrayDevice, Kind, open_device

_PROBE = 1024
"""Rows of the first product, which tells how large a product may be."""
_LONGEST = 1.0
"""Seconds that one product may take, else a smaller one is measured: an unknown GPU may be a slow one."""
_BUDGET = 8.0
"""Seconds for all products that are timed."""


def run(device: Kind, precision: str, size: int, warm_up: int, repeats: int) -> dict[str, Any]:
    """Multiply matrices of at most `size` rows and columns."""
    return measure(open_device(device), precision, size, warm_up, repeats)


def measure(device: ArrayDevice, precision: str, size: int, warm_up: int, repeats: int) -> dict[str, Any]:
    """Return TFLOP/s of dense products, and the columns of an exact product that are wrong, with its checksum."""
    size = fitting(device, precision, size)
    return {
        "precision": precision,
        "size": size,
        "tflops": 2 * size**3 / dense_seconds(device, precision, size, warm_up, repeats) / 1e12,
        **exact(device, precision, size),
    }


def dense_seconds(device: ArrayDevice, precision: str, size: int, warm_up: int, repeats: int) -> float:
    """Return the median seconds of a product, of as many repeats as fit into the time for them."""
    left, right = (operands.dense(number, size, device, precision) for number in (0, 1))
    product = device.xp.empty_like(left)

    def multiply() -> None:
        device.xp.matmul(left, right, out=product)

    (once,) = device.seconds(multiply, warm_up=1, repeats=1)
    repeats = max(1, min(repeats, int(_BUDGET / once)))
    return device.median_seconds(multiply, warm_up=min(warm_up, repeats), repeats=repeats)


def exact(device: ArrayDevice, precision: str, size: int) -> dict[str, Any]:
    """Return the wrong columns of an exact product, its checksum and the right one."""
    left, right = (operands.sparse(number, size, device, precision) for number in (0, 1))
    return compare(device, left @ right, left, right)


def compare(device: ArrayDevice, product: Array, left: Array, right: Array) -> dict[str, Any]:
    """Compare a product of the sparse matrices with their sums, and with the checksum that is known."""
    weights = operands.weights(len(product), device)
    folded = operands.fold(device, weights, product)
    expected = operands.fold(device, operands.fold(device, weights, left), right)
    return {
        "wrong": operands.wrong_columns(device, product, folded, expected),
        "checksum": operands.checksum(folded),
        "right_checksum": operands.right_checksum(len(product), device),
    }


def fitting(device: ArrayDevice, precision: str, size: int) -> int:
    """Return `size`, or the largest half, quarter and so on whose product takes a second at most."""
    probe = min(_PROBE, size)
    left = operands.dense(0, probe, device, precision)
    (seconds,) = device.seconds(lambda: left @ left, warm_up=1, repeats=1)
    while size > probe and seconds * (size / probe) ** 3 > _LONGEST:
        size //= 2
    return size
