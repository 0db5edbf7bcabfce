"""Match a machine's GPU with the catalogue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddock.catalog.gpus import Gpu as Model
    from paddock.gpu.model import Gpu


def catalog_entry(gpu: Gpu) -> Model | None:
    """Return the entry by PCI device, else by the driver's name for the GPU; None where the catalogue has none."""
    from paddock.catalog.gpus import gpus

    for model in gpus().values():
        if (gpu.pci_device_id and model.pci_device_id == gpu.pci_device_id) or (gpu.name and model.product == gpu.name):
            return model
    return None


def is_model(gpu: Gpu, model: str) -> bool:
    """Return True where every word of the model is in the GPU's name, or in its key in the catalogue."""
    words = _words(model)
    if not words:
        return False
    if words <= _words(gpu.name or ""):
        return True
    fact = catalog_entry(gpu)
    return fact is not None and words <= _words(fact.key)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))
