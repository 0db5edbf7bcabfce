"""What a GPU's NVLinks lead to, and how two GPUs reach each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from paddock.gpu.drivers import pci
from paddock.gpu.drivers.nvml_calls import Calls, Device
from paddock.gpu.model import Closeness, Gpu, NvLink, Pair

_STATE, _ERRORS = 165, (161, 162, 163)
"""Fields of one link: its state; its replays, recoveries and CRC errors."""
_READ = 0
"""NVML_P2P_CAPS_INDEX_READ, which nvidia-ml-py has as a tuple."""
_ENDS: dict[int, Literal["gpu", "cpu", "switch"]] = {0: "gpu", 1: "cpu", 2: "switch"}
_ANCESTORS: dict[int, Closeness] = {
    0: "same-board", 10: "pcie-switch", 20: "pcie-switches", 30: "host-bridge", 40: "numa-node", 50: "system",
}  # fmt: skip


def links(calls: Calls, device: Device, *, ends: bool) -> tuple[NvLink, ...]:
    """The links; with `ends`, where they lead and their errors, which takes two calls a link."""
    numbers = range(device.links)
    if ends:
        calls.fields(device, tuple((kind, link) for link in numbers for kind in _ERRORS))
    return tuple(link for number in numbers if (link := _link(calls, device, number, ends=ends)))


def _link(calls: Calls, device: Device, link: int, *, ends: bool) -> NvLink | None:
    state = device.fields[_STATE, link]
    if state is None:
        state = calls.ask(device, "nvmlDeviceGetNvLinkState", link)
        if state is None:
            return None
    if not ends or not state:
        return NvLink(link, bool(state), errors=_errors(calls, device, link) if ends else None)
    kind = calls.ask(device, "nvmlDeviceGetNvLinkRemoteDeviceType", link)
    far = calls.ask(device, "nvmlDeviceGetNvLinkRemotePciInfo", link)
    remote = f"{far.domain:04x}:{far.bus:02x}:{far.device:02x}.0" if far else None
    return NvLink(link, True, _ENDS.get(kind, "unknown"), remote, _errors(calls, device, link))


def _errors(calls: Calls, device: Device, link: int) -> int | None:
    found = [device.fields[kind, link] for kind in _ERRORS]
    if all(count is None for count in found):  # drivers before these fields
        found = [calls.ask(device, "nvmlDeviceGetNvLinkErrorCounter", link, counter) for counter in range(4)]
    known = [count for count in found if count is not None]
    return sum(known) if known else None


def pairs(calls: Calls, answering: Sequence[tuple[Device, Gpu]], root: Path) -> tuple[Pair, ...]:
    """Every two GPUs once."""
    return tuple(_pair(calls, one, other, root) for n, one in enumerate(answering) for other in answering[n + 1 :])


def _pair(calls: Calls, one: tuple[Device, Gpu], other: tuple[Device, Gpu], root: Path) -> Pair:
    (device, a), (far, b) = one, other
    level = calls.between("nvmlDeviceGetTopologyCommonAncestor", device, far)
    near = pci.closeness(a.pci_address, b.pci_address, root) if level is None else _ANCESTORS.get(level)
    peer = calls.between("nvmlDeviceGetP2PStatus", device, far, _READ)
    known = peer is not None and peer != calls.nvml.NVML_P2P_STATUS_UNKNOWN
    return Pair(a.index, b.index, near, _between(a, b), peer == calls.nvml.NVML_P2P_STATUS_OK if known else None)


def _between(a: Gpu, b: Gpu) -> int:
    direct = sum(link.active and link.to == "gpu" and link.remote == b.pci_address for link in a.nvlinks)
    switched = (sum(link.active and link.to == "switch" for link in gpu.nvlinks) for gpu in (a, b))
    return direct + min(switched)
