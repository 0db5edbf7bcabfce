"""GPUs that jobs can really have: with a device file in this container, of one vendor."""

from __future__ import annotations

import stat
from collections import Counter
from dataclasses import replace
from pathlib import Path

from paddock.gpu.model import Gpu, Inventory
from paddock.slurm.detect.machine import detect


def usable(inventory: Inventory, root: Path = Path("/")) -> tuple[Inventory, tuple[str, ...]]:
    """Return the GPUs that jobs can have, numbered from 0, and warnings about those left out."""
    warnings, kept = [], []
    vendors = Counter(gpu.vendor for gpu in inventory.usable)
    vendor = vendors.most_common(1)[0][0] if vendors else None
    for gpu in inventory.gpus:
        path = _device(gpu, wsl=inventory.machine.wsl)
        if gpu.state == "ok" and gpu.vendor != vendor:
            warnings.append(f"GPU {gpu.index} is left out: it is of {gpu.vendor}, and a node has GPUs of one vendor")
        elif gpu.state == "ok" and path and not _is_device(root, path):
            warnings.append(
                f"GPU {gpu.index} ({gpu.name or 'unknown model'}) is left out: this container has no {path}"
            )
        else:
            kept.append(gpu)
    detection = detect(replace(inventory, gpus=tuple(kept)), None)
    return detection.contained, (*warnings, *detection.notes)


def _device(gpu: Gpu, *, wsl: bool) -> str | None:
    """Return the path of its device file; None where it is not known."""
    if wsl:
        return "/dev/dxg"
    if gpu.minor is None:
        return None
    return f"/dev/nvidia{gpu.minor}" if gpu.vendor == "nvidia" else f"/dev/dri/renderD{gpu.minor}"


def _is_device(root: Path, path: str) -> bool:
    try:
        return stat.S_ISCHR((root / path.lstrip("/")).stat().st_mode)
    except OSError:
        return False
