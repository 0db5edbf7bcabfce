"""Copies between every two GPUs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from paddock.smoke.workers.device import ArrayDevice, Kind, open_device


def run(device: Kind, size: int, repeats: int) -> dict[str, Any]:
    """Copy `size` bytes from each GPU to each other; GB/s by the numbers of both, and whether the copy is direct."""
    opened = open_device(device)
    count = torch.cuda.device_count()
    return {
        "pairs": [
            _copy(opened, source, target, size, repeats)
            for source in range(count)
            for target in range(count)
            if source != target
        ]
    }


def _copy(device: ArrayDevice, source: int, target: int, size: int, repeats: int) -> dict[str, Any]:
    """Copy numbers that no other GPU has, and let the target compare them by itself."""
    data = _numbers(source, size // 8, source)
    copy = torch.zeros_like(data, device=f"cuda:{target}")
    with torch.cuda.device(source):
        work = partial(copy.copy_, data, non_blocking=True)
        seconds = device.median_seconds(work, warm_up=2, repeats=repeats)
    torch.cuda.synchronize(target)
    return {
        "from": source,
        "to": target,
        "gbs": size / seconds / 1e9,
        "direct": torch.cuda.can_device_access_peer(source, target),
        "wrong": int((copy != _numbers(source, size // 8, target)).sum()),
    }


def _numbers(source: int, count: int, device: int) -> torch.Tensor:
    return torch.arange(source, source + count, dtype=torch.int64, device=f"cuda:{device}")
