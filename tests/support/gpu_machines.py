"""Machines to render configurations for, and their PCI trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from paddock.gpu.drivers.amd import Amd
from paddock.gpu.model import Driver, Gpu, Inventory, Machine, Pair
from tests.support.boxes import box, divided, gpu

NO_GPU = Inventory(
    "2026-11-20T10:00:00Z",
    Machine("box", "linux", "x86_64"),
    "none",
    reason="This machine has no GPU: none on its bus.",
)


def machines(folder: Path) -> dict[str, Inventory]:
    """By name; the AMD one is read from a tree that is written into the folder."""
    eight = [gpu(index, minor=index) for index in range(8)]
    meshed = [Pair(a, b, "system", 18) for a, b in combinations(range(8), 2)]
    lost = [replace(gpu, state="lost", reason="GPU is lost") if gpu.index == 2 else gpu for gpu in eight]
    driver = Driver("580.95.05", "13.0")
    return {
        "8-h100": replace(box(eight, meshed), driver=driver),
        "t4": replace(box([gpu(0, "t4", minor=0)]), driver=driver),
        "t4-a10g": replace(box([gpu(0, "t4", minor=0), gpu(1, "a10g", minor=1)]), driver=driver),
        "mig": replace(box([divided(0)]), driver=driver),
        "one-lost": replace(box(lost, meshed), driver=driver),
        "2-mi300x": instincts(folder),
        "none": NO_GPU,
    }


def instincts(folder: Path) -> Inventory:
    """Two MI300X as their driver's sysfs tells them, on a machine where group 109 may use them."""
    for number, bus in enumerate((0x05, 0x65)):
        address = f"0000:{bus:02x}:00.0"
        device = folder / f"sys/devices/pci0000:00/{address}"
        files = {"vendor": "0x1002", "device": "0x74a1", "unique_id": f"{number + 1:016x}",
                "product_name": "AMD Instinct MI300X OAM", "mem_info_vram_total": "206141652992",
                "mem_info_vram_used": "297795584"}  # fmt: skip
        (device / f"drm/renderD{128 + number}").mkdir(parents=True)
        for name, text in files.items():
            (device / name).write_text(text + "\n")
        card = device / f"drm/card{number}"
        card.mkdir()
        (card / "device").symlink_to(device)
        (folder / "sys/class/drm").mkdir(parents=True, exist_ok=True)
        (folder / f"sys/class/drm/card{number}").symlink_to(card)
    (folder / "dev").mkdir()
    (folder / "dev/kfd").touch()
    gpus: tuple[Gpu, ...] = Amd(folder).read().gpus
    assert {gpu.device_group for gpu in gpus} == {(folder / "dev/kfd").stat().st_gid}
    machine = Machine("box", "linux", "x86_64")
    return Inventory(
        "2026-11-20T10:00:00Z", machine, "amd-sysfs", tuple(replace(gpu, device_group=109) for gpu in gpus)
    )


def pci(root: Path, functions: Mapping[str, Mapping[str, Any]]) -> Path:
    """A host's /sys. Each function, by address: id, kind (class and subclass), group (None: it has none), and what else
    sysfs has of it; `driver` is its name."""
    for address, about in functions.items():
        folder = root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        vendor, _, device = str(about["id"]).partition(":")
        files = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{about.get('kind', '0302')}00"}
        files |= {name: about[name] for name in ("subsystem_vendor", "subsystem_device", "boot_vga") if name in about}
        for name, text in files.items():
            (folder / name).write_text(f"{text}\n")
        if "driver" in about:
            (root / "sys/bus/pci/drivers" / about["driver"]).mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(root / "sys/bus/pci/drivers" / about["driver"])
        if about.get("group") is not None:
            (root / f"sys/kernel/iommu_groups/{about['group']}/devices/{address}").mkdir(parents=True)
    return root


def host(root: Path, gpus: Iterable[Gpu]) -> Path:
    """Return a host on which every GPU has a group of its own, below a bridge that is in it too."""
    functions: dict[str, dict[str, Any]] = {
        "0000:00:00.0": {"id": "8086:09a2", "kind": "0600", "group": 0},
        "0000:01:00.0": {"id": "144d:a80a", "kind": "0108", "group": 1, "driver": "nvme"},
    }
    for number, device in enumerate(gpus):
        address = str(device.pci_address)
        bridge = address.replace(":00.0", ":1f.0")
        functions[bridge] = {"id": "10b5:8747", "kind": "0604", "group": 20 + number}
        functions[address] = {
            "id": device.pci_device_id, "group": 20 + number, "driver": "nvidia",
            "subsystem_vendor": "0x10de", "subsystem_device": "0x16c1",
        }  # fmt: skip
    return pci(root, functions)
