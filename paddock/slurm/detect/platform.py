"""Platforms, and the GPUs that a Linux container can have on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paddock.gpu.model import Inventory, Machine

Vendor = Literal["nvidia", "amd", "apple"]
System = Literal["Linux", "Windows WSL2", "macOS Intel", "macOS Apple Silicon", "another system"]

_VIRTUAL = (
    "Docker on macOS runs containers in a Linux virtual machine, and Apple's hypervisor hands no GPU on to one. Slurm"
    " runs there without GPUs; use them from programs on macOS itself (Metal), or run this on a Linux machine."
)


@dataclass(frozen=True, slots=True)
class Support:
    """GPUs of one vendor in containers of one platform: possible, or the reason why not."""

    system: System
    vendor: Vendor
    possible: bool
    needs: str
    """Software that passes the GPU to a container, or the reason why nothing does."""


MATRIX = (
    Support("Linux", "nvidia", True, "NVIDIA's driver and nvidia-container-toolkit"),
    Support("Linux", "amd", True, "the amdgpu kernel driver with /dev/kfd (ROCm's)"),
    Support("Windows WSL2", "nvidia", True, "NVIDIA's driver for Windows, and nvidia-container-toolkit in WSL"),
    Support(
        "Windows WSL2", "amd", False,
        "In WSL2 an AMD GPU has no /dev/kfd, which containers need. Slurm runs there without GPUs; boot Linux to use"
        " them.",
    ),
    Support("macOS Intel", "nvidia", False, _VIRTUAL),
    Support("macOS Intel", "amd", False, _VIRTUAL),
    Support("macOS Apple Silicon", "apple", False, _VIRTUAL),
)  # fmt: skip
"""Every platform that has an answer of its own; on any other system no GPU reaches a container."""


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
    for row in MATRIX:
        if (row.system, row.vendor) == (place, vendors[0]):
            return row
    return Support(place, vendors[0], False, f"On {place} no {vendors[0]} GPU reaches a Linux container.")
