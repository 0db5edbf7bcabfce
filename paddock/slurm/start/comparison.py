"""Differences between the machine that the node was configured for and the one that it starts on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from paddock.gpu.model import Inventory


def differences(built: Inventory, now: Inventory) -> tuple[str, ...]:
    """Say what changed since the files were written; empty where the usable GPUs are the same models and numbers."""
    before, after = models(built), models(now)
    if before == after:
        drivers = _driver(built), _driver(now)
        if None in drivers or drivers[0] == drivers[1]:
            return ()
        return (f"driver {drivers[1]} here, and {drivers[0]} when it was configured",)
    if not after:
        reason = f": {now.reason}" if now.reason else ""
        return (f"no GPUs here, and {words(before)} when it was configured{reason}",)
    if not before:
        return (f"{words(after)} here, and no GPUs when it was configured",)
    lines = []
    for name in sorted(before.keys() | after.keys()):
        change = after[name] - before[name]
        if name not in before:
            lines.append(f"{after[name]}x {name} here, another model than when it was configured")
        elif name not in after:
            lines.append(f"no {name} here, and {before[name]} when it was configured")
        elif change:
            more = "more" if change > 0 else "fewer"
            lines.append(f"{after[name]}x {name} here, {abs(change)} {more} than when it was configured")
    return tuple(lines)


def words(models: Counter[str]) -> str:
    """Return counted models in words: `2x NVIDIA A10G and 1x Tesla T4`."""
    return " and ".join(f"{count}x {name}" for name, count in models.items()) or "no GPUs"


def models(inventory: Inventory) -> Counter[str]:
    """Return the usable GPUs counted by model."""
    return Counter(gpu.name or "unknown model" for gpu in inventory.usable)


def without_gpus(inventory: Inventory) -> Inventory:
    """Return the same machine without its GPUs."""
    return replace(inventory, gpus=(), pairs=())


def _driver(inventory: Inventory) -> str | None:
    return inventory.driver.version if inventory.driver else None
