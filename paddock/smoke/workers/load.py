"""Steady load of dense GEMMs for a while, compared, so that clocks and heat can be watched from outside."""

from __future__ import annotations

import time
from typing import Any

from paddock.smoke.workers import gemm, operands
from paddock.smoke.workers.device import Array, ArrayDevice, Kind, open_device

_BATCH = 0.2
"""Seconds of products between two readings of the clock; the device waits for nothing within."""


def run(device: Kind, precision: str, size: int, seconds: float) -> dict[str, Any]:
    """Multiply matrices of at most `size` rows for that long."""
    return hold(open_device(device), precision, size, seconds)


def hold(device: ArrayDevice, precision: str, size: int, seconds: float) -> dict[str, Any]:
    """Return TFLOP/s over time, and how many numbers of all products compared differ from the first product's.

    The device makes the matrices once and compares by itself: it has nothing to wait for, and stays hot.
    """
    multiply = device.xp.matmul
    size = gemm.fitting(device, precision, size)
    left, right = (operands.dense(number, size, device, precision) for number in (0, 1))
    first, product = multiply(left, right), device.xp.empty_like(left)
    wrong: Array = 0
    once = device.median_seconds(lambda: multiply(left, right, out=product), warm_up=1, repeats=2)
    batch = max(1, int(_BATCH / once))
    rates: list[float] = []
    begin = last = time.perf_counter()
    while last - begin < seconds:
        for _ in range(batch):
            multiply(left, right, out=product)
        wrong = wrong + (product != first).sum()
        device.synchronize()
        now = time.perf_counter()
        rates.append(batch * 2 * size**3 / (now - last) / 1e12)
        last = now
    return {
        "tflops": rates,
        "wrong": int(wrong),
        "products": len(rates) * batch,
        "size": size,
        "seconds": last - begin,
    }
