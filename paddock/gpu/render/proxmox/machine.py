"""A virtual machine of Proxmox VE with a passed-through GPU, by a resource mapping and VFIO."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from paddock.gpu.errors import NoGpu
from paddock.gpu.render.fields import Proxmox, matching, wrong
from paddock.gpu.render.proxmox.iommu import Card, Function, find_card, functions, refuse_shared
from paddock.gpu.render.proxmox.vfio import host_files
from paddock.gpu.render.rendered import File, Rendered, headed
from paddock.gpu.render.request import RenderRequest

_MOST = 16
_LARGE_BAR_MIB = 32 * 1024


def render(request: RenderRequest, *, root: Path = Path("/"), node: str = "", mapping: str = "") -> Rendered:
    """Render the mapping, the machine's settings and the host's files.

    `root` holds the host's /sys, `node` is its name in the cluster, `mapping` the name of the resource. Raises GpuError
    where a card shares its IOMMU group with another device.
    """
    if not request.enabled:
        return Rendered("proxmox", (), request.notes, request.warnings)
    fields = request.fields if isinstance(request.fields, Proxmox) else Proxmox()
    if not fields.vfio:
        raise wrong(
            "VFIO is false, and a virtual machine is given a whole GPU in no other way",
            "true",
            "a container (LXC) uses the host's driver: render `environment` for it",
        )
    every = functions(root)
    cards = _cards(request, fields, every)
    refuse_shared(cards, every)
    node = matching("node", node or request.inventory.machine.name, r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?", "a name")
    names = {card.gpu.id: _mapping_name(request, card, mapping, cards) for card in cards}
    maps = {
        names[model]: [_entry(card, node) for card in cards if card.gpu.id == model]
        for model in dict.fromkeys(card.gpu.id for card in cards)
    }
    settings = _settings(cards, names, fields)
    files = (
        File("mapping.json", json.dumps([{"id": name, "map": lines} for name, lines in maps.items()], indent=2) + "\n"),
        headed("mapping.sh", _mapping_script(maps), 0o755),
        File("vm.json", json.dumps(settings, indent=2) + "\n"),
        File("vm.conf", "".join(f"{name}: {value}\n" for name, value in settings.items())),
        headed("vm.sh", _vm_script(settings), 0o755),
        *host_files(cards, every),
    )
    return Rendered(
        "proxmox", files, (*request.notes, *_notes(request, cards, every)), (*request.warnings, *_warnings(cards))
    )


def _cards(request: RenderRequest, fields: Proxmox, every: Sequence[Function]) -> tuple[Card, ...]:
    addresses = list(fields.pci_devices)
    for device in request.devices:
        if device.part:
            raise wrong(
                f"{device.uuid} is a MIG part, which is not a PCI device",
                "a whole GPU",
                "switch MIG off, or use vGPU (mdev)",
            )
        if not device.gpu.pci_address:
            raise wrong(f"the PCI address of GPU {device.gpu.index} is not known", "one", "name it by PCIDevices")
        addresses.append(device.gpu.pci_address)
    if not addresses:
        raise NoGpu(f"{request.inventory.reason or 'there is no GPU to give'}\n    fix: name it by PCIDevices")
    cards = {entry.slot: entry for entry in (find_card(address, every) for address in addresses)}
    for gpu in request.inventory.gpus:
        if gpu.pci_address and gpu.state == "lost" and any(gpu.pci_address.startswith(slot) for slot in cards):
            raise NoGpu(f"{gpu.pci_address} is lost{f': {gpu.reason}' if gpu.reason else ''}\n    fix: leave it out")
    if len(cards) > _MOST:
        raise wrong(f"{len(cards)} GPUs for one virtual machine", f"at most {_MOST}")
    return tuple(sorted(cards.values(), key=lambda entry: entry.slot))


def _mapping_name(request: RenderRequest, card: Card, name: str, cards: Iterable[Card]) -> str:
    if name:
        if len({other.gpu.id for other in cards}) > 1:
            raise wrong(f"mapping is {name!r}, and the GPUs are of several models", "one mapping for each model")
        return matching("mapping", name, r"[A-Za-z][A-Za-z0-9_-]+", "a letter, then letters, digits, _ and -")
    from paddock.catalog.gpus import gpus

    return next((model.key for model in gpus().values() if model.pci_device_id == card.gpu.id), None) or (
        f"gpu-{card.gpu.id.replace(':', '-')}"
    )


def _entry(card: Card, node: str) -> str:
    """Return the mapping entry, which Proxmox compares with the hardware before it starts the machine."""
    parts = {"node": node, "path": card.path, "id": card.gpu.id, "iommugroup": str(card.gpu.group)}
    if card.gpu.subsystem:
        parts["subsystem-id"] = card.gpu.subsystem
    return ",".join(f"{name}={value}" for name, value in parts.items())


def _settings(cards: Sequence[Card], names: Mapping[str, str], fields: Proxmox) -> dict[str, str]:
    settings = {"machine": "q35", "bios": "ovmf", "cpu": "host"}
    if fields.primary:
        settings["vga"] = "none"
    for number, card in enumerate(cards):
        value = f"mapping={names[card.gpu.id]},pcie=1"
        if number == 0 and (fields.x_vga or fields.primary):
            if not card.draws:
                name = "X_VGA" if fields.x_vga else "Primary"
                raise wrong(f"{name}, and {card.gpu} is not a display", "a GPU with an output", f"leave {name} out")
            value += ",x-vga=1"
        settings[f"hostpci{number}"] = value + ("" if fields.rombar else ",rombar=0")
    return settings


def _mapping_script(maps: Mapping[str, Sequence[str]]) -> str:
    lines = ["#!/bin/sh", "# Once in the cluster; it fails where a mapping of that name is there.", "set -eu"]
    for name, entries in maps.items():
        lines.append(
            shlex.join(["pvesh", "create", "/cluster/mapping/pci", "--id", name, *_repeated_flag("--map", entries)])
        )
    return "\n".join(lines) + "\n"


def _vm_script(settings: Mapping[str, str]) -> str:
    flags = [word for name, value in settings.items() for word in (f"--{name}", value)]
    usage = 'vmid="${1:?usage: vm.sh VMID, of a virtual machine that is switched off}"'
    return "\n".join(["#!/bin/sh", "set -eu", usage, f'qm set "$vmid" {shlex.join(flags)}']) + "\n"


def _repeated_flag(flag: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]


def _notes(request: RenderRequest, cards: Sequence[Card], every: Sequence[Function]) -> Iterable[str]:
    yield "A mapping needs no root password: an API token with Mapping.Use and VM.Config.HWType may set hostpci by it."
    yield "The machine needs an EFI disk for bios=ovmf; a guest that was installed without may not start any more."
    whole = [card for card in cards if len(card.functions) > 1]
    if whole:
        yield f"All functions of {', '.join(card.slot for card in whole)} are given, its sound too."
    large = [
        device.gpu for device in request.devices if device.gpu.memory and device.gpu.memory.total >= _LARGE_BAR_MIB
    ]
    if large:
        yield (
            "If the guest finds no room for the GPU's memory, root can widen it:"
            f" args: -global q35-pcihost.pci-hole64-size={_hole(sum(gpu.memory.total for gpu in large if gpu.memory))}G"
        )
    if {function.address for function in every if function.kind[:2] == "03"} <= {
        function.address for card in cards for function in card.functions
    }:
        yield "No display is left to the host: it is reached over the network or a serial line."


def _hole(mib: int) -> int:
    """Return GiB, a power of two, at least twice the memory."""
    return 1 << (2 * mib // 1024).bit_length()


def _warnings(cards: Iterable[Card]) -> Iterable[str]:
    for card in cards:
        if card.gpu.boot_display:
            yield f"{card.gpu.address} is the display that the host started on; its console goes dark."
