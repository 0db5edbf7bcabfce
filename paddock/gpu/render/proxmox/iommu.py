"""PCI cards and their IOMMU groups, by sysfs below a `root`: the check that a card can be passed through alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.errors import GpuError
from paddock.gpu.render.fields import wrong

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE)
_BRIDGES = ("0600", "0604")
"""Host bridges and PCIe bridges: they stay with the host, and do not count as sharing a group."""
_VGA, _AUDIO = "0300", "0403"
_GPU_CLASSES = ("03", "12")
"""Display controllers and processing accelerators."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function of a card, `0000:01:00.0`. `id` and `subsystem` are `10de:2330`."""

    address: str
    id: str
    kind: str
    """The PCI class and subclass, `0300`."""
    subsystem: str | None
    driver: str | None
    group: int | None
    boot_display: bool

    def __str__(self) -> str:
        return f"{self.address} ({self.id}, class {self.kind}{f', driver {self.driver}' if self.driver else ''})"


@dataclass(frozen=True, slots=True)
class Card:
    """All functions of one slot; the first is the GPU itself."""

    slot: str
    functions: tuple[Function, ...]

    @property
    def gpu(self) -> Function:
        return self.functions[0]

    @property
    def path(self) -> str:
        """Proxmox's name; without a function number it means all functions."""
        return self.slot if len(self.functions) > 1 else self.gpu.address

    @property
    def draws(self) -> bool:
        return self.gpu.kind == _VGA

    @property
    def sounds(self) -> bool:
        return any(function.kind == _AUDIO for function in self.functions)


def slot(address: str) -> str:
    """Return `0000:01:00` for `01:00.0`, `0000:01:00.0` or `00000000:01:00`. Raises GpuInputError."""
    match = _ADDRESS.fullmatch(address.strip())
    if not match:
        raise wrong(f"{address!r} is not a PCI address", "such as 0000:01:00.0, or 01:00.0")
    return f"{int(match[1] or '0', 16):04x}:{match[2]}:{match[3]}".lower()


def functions(root: Path) -> tuple[Function, ...]:
    """Return all PCI functions in PCI order. Raises GpuError where /sys has none."""
    groups = {
        entry.name: int(entry.parent.parent.name)
        for entry in (root / "sys/kernel/iommu_groups").glob("*/devices/*")
        if entry.parent.parent.name.isdecimal()
    }
    folder = root / "sys/bus/pci/devices"
    result = tuple(_function(entry, groups) for entry in sorted(folder.glob("*")))
    if not result:
        raise GpuError(f"{folder} lists no PCI device\n    fix: render on the Proxmox host, or give a copy of its /sys")
    return result


def find_card(address: str, every: Sequence[Function]) -> Card:
    """Return the card at the address. Raises GpuInputError where there is none, or it is not a GPU."""
    requested = slot(address)
    own = tuple(function for function in every if function.address.startswith(f"{requested}."))
    gpus = (
        ", ".join(function.address for function in every if function.kind[:2] in _GPU_CLASSES)
        or "a GPU, and none is there"
    )
    if not own:
        raise wrong(f"{address} is not a PCI device of this host", gpus, "render on the Proxmox host")
    if own[0].kind[:2] not in _GPU_CLASSES:
        raise wrong(f"{own[0]} is not a GPU", gpus)
    return Card(requested, own)


def refuse_shared(cards: Iterable[Card], every: Sequence[Function]) -> None:
    """Check that the IOMMU groups of the cards hold only these cards and bridges. Raises GpuError."""
    cards = tuple(cards)
    if not any(function.group is not None for function in every):
        raise GpuError(
            "the IOMMU is off: /sys/kernel/iommu_groups is empty, so no device can be given to a virtual machine"
            "\n    fix: switch VT-d or AMD-Vi on in the firmware; with an Intel CPU and a kernel before 6.8 add"
            " `intel_iommu=on iommu=pt` to the kernel's command line (/etc/kernel/cmdline and `proxmox-boot-tool"
            " refresh`, or GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub and `update-grub`), and reboot"
        )
    addresses = {function.address for card in cards for function in card.functions}
    for card in cards:
        for own in card.functions:
            if own.group is None:
                raise GpuError(f"{own} has no IOMMU group\n    fix: another slot, below a port that has one")
            members = [function for function in every if function.group == own.group]
            foreign = [
                function for function in members if function.address not in addresses and function.kind not in _BRIDGES
            ]
            if foreign:
                raise GpuError(
                    f"{own} shares IOMMU group {own.group} with {'; '.join(map(str, foreign))}"
                    "\n    expected: a group of its own, since a group is given away as a whole"
                    "\n    fix: put the card into another slot, one of the CPU's own where there is one; if the others"
                    " are GPUs for the same machine, name them too"
                )


def _function(folder: Path, groups: dict[str, int]) -> Function:
    def text(name: str) -> str:
        try:
            return (folder / name).read_text().strip().removeprefix("0x").lower()
        except OSError:
            return ""

    subsystem = (text("subsystem_vendor"), text("subsystem_device"))
    driver = folder / "driver"
    return Function(
        folder.name,
        f"{text('vendor')}:{text('device')}",
        text("class")[:4],
        ":".join(subsystem) if all(subsystem) else None,
        driver.resolve().name if driver.exists() else None,
        groups.get(folder.name),
        text("boot_vga") == "1",
    )
