"""Bandwidth between the host and a device, and inside its memory."""

from __future__ import annotations

from typing import Any

from paddock.smoke.workers.device import ArrayDevice, Kind, open_device


def run(device: Kind, size: int, repeats: int) -> dict[str, Any]:
    """Copy `size` bytes each way."""
    return measure(open_device(device), size, repeats)


def measure(device: ArrayDevice, size: int, repeats: int) -> dict[str, Any]:
    """Return GB/s. A copy inside memory counts what it reads and what it writes; one over a link counts once."""
    words, xp = size // 8, device.xp
    on_device = xp.zeros(words, dtype=xp.int64, **device.place)
    target = xp.empty_like(on_device)
    inside = device.median_seconds(lambda: device.copy(target, on_device), warm_up=2, repeats=repeats)
    result: dict[str, Any] = {"memory_gbs": 2 * size / inside / 1e9, "wrong": 0}
    if device.kind == "cpu":
        return result
    pinned = device.kind == "cuda"
    host = xp.arange(words, dtype=xp.int64, pin_memory=pinned)
    back = xp.zeros(words, dtype=xp.int64, pin_memory=pinned)
    to_device = device.median_seconds(lambda: device.copy(on_device, host), warm_up=2, repeats=repeats)
    to_host = device.median_seconds(lambda: device.copy(back, on_device), warm_up=2, repeats=repeats)
    return {
        **result,
        "to_device_gbs": size / to_device / 1e9,
        "to_host_gbs": size / to_host / 1e9,
        "wrong": int((host != back).sum()),
    }
