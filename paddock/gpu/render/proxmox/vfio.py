"""Files by which a host keeps its own drivers off the cards that it gives away."""

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
    own = [one for each in cards for one in each.functions]
    addresses = [one.address for one in own]
    ids = list(dict.fromkeys(one.id for one in own))
    files = [
        headed(_MODPROBE, _modprobe(cards, [] if _others(own, every) else ids)),
        headed(_LOAD, _MODULES),
    ]
    if _others(own, every):
        files.append(headed(_OVERRIDE, _HOOK.format(addresses=" ".join(addresses)), 0o755))
    installs = "\n".join(f"install -D -m {one.mode:04o} {one.path} /{one.path}" for one in files)
    script = _INSTALL.format(installs=installs, addresses=" ".join(addresses))
    return (*(File(f"host/{one.path}", one.text, one.mode) for one in files), headed("host/install.sh", script, 0o755))


def _others(own: Iterable[Function], every: Iterable[Function]) -> bool:
    """Whether a line `ids=` would take cards of the same model from the host that it keeps."""
    models, given = {one.id for one in own}, {one.address for one in own}
    return any(one.id in models and one.address not in given for one in every)


def _modprobe(cards: Sequence[Card], ids: Sequence[str]) -> str:
    lines = [f"options vfio-pci ids={','.join(ids)}"] if ids else []
    vendors = dict.fromkeys(one.gpu.id.partition(":")[0] for one in cards)
    drivers = [driver for vendor in vendors for driver in _DRIVERS.get(vendor, ())]
    if any(one.sounds for one in cards):
        drivers.append("snd_hda_intel")
    return "\n".join([*lines, *(f"softdep {driver} pre: vfio-pci" for driver in drivers)]) + "\n"
