"""Platforms, and the GPUs that a Linux container can have on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paddock.gpu.model import Inventory, Machine
from paddock.slurm.messages import tables

Vendor = Literal["nvidia", "amd", "apple"]
System = Literal["Linux", "Windows WSL2", "macOS Intel", "macOS Apple Silicon", "another system"]


@dataclass(frozen=True, slots=True)
class Support:
    """GPUs of one vendor in containers of one platform: possible, or the reason why not."""

    system: System
    vendor: Vendor
    possible: bool
    needs: str
    """Software that passes the GPU to a container, or the reason why nothing does."""


def system(machine: Machine) -> System:
    """Return the platform of a machine."""
    if machine.system == "linux":
        return "Windows WSL2" if machine.wsl else "Linux"
    if machine.system == "macos":
        return "macOS Apple Silicon" if machine.architecture in ("arm64", "aarch64") else "macOS Intel"
    return "another system"


def support(inventory: Inventory) -> Support | None:
    """Return what holds for the machine's GPUs; None where it has none."""
    vendors = [gpu.vendor for gpu in inventory.gpus]
    if not vendors:
        return None
    place = system(inventory.machine)
    for row in tables()["platforms"]:
        if (row["system"], row["vendor"]) == (place, vendors[0]):
            return Support(**row)
    return Support(place, vendors[0], False, f"On {place} no {vendors[0]} GPU reaches a Linux container.")
