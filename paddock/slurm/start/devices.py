"""GPUs that jobs can really have: with a device file in this container, of one vendor."""

from __future__ import annotations

import stat
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from paddock.gpu.model import Gpu, Inventory
from paddock.slurm.detect.machine import detect


@dataclass(frozen=True, slots=True)
class Usable:
    """GPUs that jobs can have, numbered from 0. `whole` is False where the driver counts more of their vendor."""

    inventory: Inventory
    whole: bool
    warnings: tuple[str, ...] = ()

    @property
    def uuids(self) -> tuple[str, ...]:
        """Return their UUIDs in the order in which Slurm numbers them."""
        gpus = sorted(self.inventory.gpus, key=lambda gpu: (gpu.minor is None, gpu.minor or 0))
        return tuple(str(gpu.uuid) for gpu in gpus)


def usable(inventory: Inventory, root: Path = Path("/")) -> Usable:
    """Return the GPUs that jobs can have, of the vendor with most of them, and warnings about those left out."""
    warnings, kept = [], []
    absent = {
        gpu.index: path
        for gpu in inventory.usable
        if (path := _device(gpu, wsl=inventory.machine.wsl)) and not _is_device(root, path)
    }
    vendors = Counter(gpu.vendor for gpu in inventory.usable if gpu.index not in absent)
    vendor = vendors.most_common(1)[0][0] if vendors else None
    for gpu in inventory.gpus:
        if vendor and gpu.vendor != vendor:
            warnings.append(f"GPU {gpu.index} is left out: it is of {gpu.vendor}, and a node has GPUs of one vendor")
        elif gpu.index in absent:
            warnings.append(
                f"GPU {gpu.index} ({gpu.name or 'unknown model'}) is left out: this container has no"
                f" {absent[gpu.index]}"
            )
        else:
            kept.append(gpu)
    detection = detect(replace(inventory, gpus=tuple(kept)), None)
    contained = detection.contained
    whole = len(contained.gpus) == sum(gpu.vendor == vendor for gpu in inventory.gpus)
    warnings += detection.notes
    if contained.gpus and not whole:
        warnings.append("the driver counts more GPUs than Slurm has, so jobs get theirs by UUID")
    return Usable(contained, whole, tuple(warnings))


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
