"""Steady load of matrix products for a while, checked, so that clocks and temperature can be watched from outside."""

from __future__ import annotations

import time
from typing import Any

from paddock.smoke.workers import gemm
from paddock.smoke.workers.device import Device, Kind, dtype, open_device

_CHECKED_EVERY = 5.0
"""Seconds between two comparisons of the product, which take the device's work from it."""


def run(device: Kind, precision: str, size: int, seconds: float) -> dict[str, Any]:
    """Multiply matrices of `size` rows for that long."""
    return hold(open_device(device), precision, size, seconds)


def hold(device: Device, precision: str, size: int, seconds: float) -> dict[str, Any]:
    """Return TFLOP/s of each second, and the number of wrong columns of all products that were compared."""
    left, right = (matrix.to(device.torch, dtype(precision)) for matrix in gemm.operands(size))
    batch = max(1, int(0.2 / device.median_seconds(lambda: left @ right, warm_up=2, repeats=3)))
    begin = checked = time.perf_counter()
    rates, wrong, product = [], 0, left @ right
    while (now := time.perf_counter()) - begin < seconds:
        for _ in range(batch):
            product = left @ right
        device.synchronize()
        rates.append(batch * 2 * size**3 / (time.perf_counter() - now) / 1e12)
        if time.perf_counter() - checked > _CHECKED_EVERY:
            wrong += gemm.wrong_columns(product.to("cpu").float(), *gemm.operands(size))
            checked = time.perf_counter()
    wrong += gemm.wrong_columns(product.to("cpu").float(), *gemm.operands(size))
    return {"tflops": rates, "wrong": wrong, "seconds": time.perf_counter() - begin}
