"""Files that keep a host's own drivers off the cards that it passes through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddock.gpu.render.proxmox.iommu import Card, Function
from paddock.gpu.render.rendered import File, headed

_DRIVERS = {"10de": ("nvidia", "nouveau", "nvidiafb"), "1002": ("amdgpu", "radeon")}
_MODULES = "vfio\nvfio_iommu_type1\nvfio_pci\n"
_MODPROBE, _LOAD = "etc/modprobe.d/paddock-vfio.conf", "etc/modules-load.d/paddock-vfio.conf"
_OVERRIDE = "etc/initramfs-tools/scripts/init-top/paddock-vfio"
_HOOK = """#!/bin/sh
# By address: other cards of the same model stay with the host.
case "${{1:-}}" in
prereqs)
    echo ""
    exit 0
    ;;
esac
for address in {addresses}; do
    [ -e "/sys/bus/pci/devices/$address" ] || continue
    echo vfio-pci > "/sys/bus/pci/devices/$address/driver_override"
done
# Without the module here, it takes them later: no other driver does.
modprobe -i vfio-pci || true
"""
_INSTALL = """#!/bin/sh
# Once on the Proxmox host, as root, from the folder that holds this file; then reboot.
set -eu
cd "$(dirname "$0")"
{installs}
update-initramfs -u -k all
echo "Reboot. Then lspci -nnk says for each of {addresses}: Kernel driver in use: vfio-pci"
"""


def host_files(cards: Sequence[Card], every: Sequence[Function]) -> tuple[File, ...]:
    own = [function for card in cards for function in card.functions]
    addresses = [function.address for function in own]
    ids = list(dict.fromkeys(function.id for function in own))
    files = [headed(_MODPROBE, _modprobe(cards, [] if _has_other_cards(own, every) else ids)), headed(_LOAD, _MODULES)]
    if _has_other_cards(own, every):
        files.append(headed(_OVERRIDE, _HOOK.format(addresses=" ".join(addresses)), 0o755))
    installs = "\n".join(f"install -D -m {file.mode:04o} {file.path} /{file.path}" for file in files)
    script = _INSTALL.format(installs=installs, addresses=" ".join(addresses))
    return (
        *(File(f"host/{file.path}", file.text, file.mode) for file in files),
        headed("host/install.sh", script, 0o755),
    )


def _has_other_cards(own: Iterable[Function], every: Iterable[Function]) -> bool:
    """Return True where a line `ids=` would also take cards of the same model that the host keeps."""
    models, addresses = {function.id for function in own}, {function.address for function in own}
    return any(function.id in models and function.address not in addresses for function in every)


def _modprobe(cards: Sequence[Card], ids: Sequence[str]) -> str:
    lines = [f"options vfio-pci ids={','.join(ids)}"] if ids else []
    vendors = dict.fromkeys(card.gpu.id.partition(":")[0] for card in cards)
    drivers = [driver for vendor in vendors for driver in _DRIVERS.get(vendor, ())]
    if any(card.sounds for card in cards):
        drivers.append("snd_hda_intel")
    return "\n".join([*lines, *(f"softdep {driver} pre: vfio-pci" for driver in drivers)]) + "\n"
