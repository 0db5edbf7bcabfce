"""Copies between every two GPUs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from paddock.smoke.workers.device import Kind, open_device


def run(device: Kind, size: int, repeats: int) -> dict[str, Any]:
    """Copy `size` bytes from each GPU to each other; GB/s by the numbers of both, and whether the copy is direct."""
    opened = open_device(device)
    pairs = []
    for source in range(torch.cuda.device_count()):
        data = torch.randint(0, 256, (size,), dtype=torch.uint8, device=f"cuda:{source}")
        for target in range(torch.cuda.device_count()):
            if source == target:
                continue
            copy = torch.empty(size, dtype=torch.uint8, device=f"cuda:{target}")
            with torch.cuda.device(source):
                work = partial(copy.copy_, data, non_blocking=True)
                seconds = opened.median_seconds(work, warm_up=2, repeats=repeats)
            torch.cuda.synchronize(target)
            pairs.append(
                {
                    "from": source,
                    "to": target,
                    "gbs": size / seconds / 1e9,
                    "direct": torch.cuda.can_device_access_peer(source, target),
                    "wrong": int((copy.cpu() != data.cpu()).sum()),
                }
            )
    return {"pairs": pairs}
