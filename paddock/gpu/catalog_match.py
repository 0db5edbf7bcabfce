"""What the catalogue knows of a GPU that is here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddock.catalog.gpus import Gpu as Model
    from paddock.gpu.model import Gpu


def known(gpu: Gpu) -> Model | None:
    """By PCI device, else by the driver's name for it; None for a model that the catalogue does not hold."""
    from paddock.catalog.gpus import gpus

    return next(
        (
            one
            for one in gpus().values()
            if (gpu.pci_device_id and one.pci_device_id == gpu.pci_device_id) or (gpu.name and one.product == gpu.name)
        ),
        None,
    )


def is_model(gpu: Gpu, wanted: str) -> bool:
    """Whether it is of that model: every word of it is in the GPU's name, or in its key in the catalogue."""
    words = _words(wanted)
    if not words:
        return False
    if words <= _words(gpu.name or ""):
        return True
    fact = known(gpu)
    return fact is not None and words <= _words(fact.key)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))
