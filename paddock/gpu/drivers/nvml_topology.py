"""NVLinks of a GPU, and the connection between each two GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from paddock.gpu.drivers import pci
from paddock.gpu.drivers.nvml_calls import Calls, NvmlDevice
from paddock.gpu.model import Closeness, Gpu, NvLink, Pair

_STATE, _ERRORS = 165, (161, 162, 163)
"""Fields of one link: its state; its replay, recovery and CRC error counts."""
_READ = 0
"""NVML_P2P_CAPS_INDEX_READ, which nvidia-ml-py has as a tuple."""
_ENDS: dict[int, Literal["gpu", "cpu", "switch"]] = {0: "gpu", 1: "cpu", 2: "switch"}
_ANCESTORS: dict[int, Closeness] = {
    0: "same-board", 10: "pcie-switch", 20: "pcie-switches", 30: "host-bridge", 40: "numa-node", 50: "system",
}  # fmt: skip


def read_links(calls: Calls, device: NvmlDevice, *, ends: bool) -> tuple[NvLink, ...]:
    """Read the links; with `ends` also their remote ends and errors, which takes two calls per link."""
    numbers = range(device.links)
    if ends:
        calls.fields(device, tuple((kind, link) for link in numbers for kind in _ERRORS))
    return tuple(link for number in numbers if (link := _link(calls, device, number, ends=ends)))


def _link(calls: Calls, device: NvmlDevice, link: int, *, ends: bool) -> NvLink | None:
    state = device.fields[_STATE, link]
    if state is None:
        state = calls.query(device, "nvmlDeviceGetNvLinkState", link)
        if state is None:
            return None
    if not ends or not state:
        return NvLink(link, bool(state), errors=_errors(calls, device, link) if ends else None)
    kind = calls.query(device, "nvmlDeviceGetNvLinkRemoteDeviceType", link)
    far = calls.query(device, "nvmlDeviceGetNvLinkRemotePciInfo", link)
    remote = f"{far.domain:04x}:{far.bus:02x}:{far.device:02x}.0" if far else None
    return NvLink(link, True, _ENDS.get(kind, "unknown"), remote, _errors(calls, device, link))


def _errors(calls: Calls, device: NvmlDevice, link: int) -> int | None:
    counters = [device.fields[kind, link] for kind in _ERRORS]
    if all(count is None for count in counters):  # drivers before these fields
        counters = [calls.query(device, "nvmlDeviceGetNvLinkErrorCounter", link, counter) for counter in range(4)]
    readable = [count for count in counters if count is not None]
    return sum(readable) if readable else None


def read_pairs(calls: Calls, answering: Sequence[tuple[NvmlDevice, Gpu]], root: Path) -> tuple[Pair, ...]:
    """Return every pair of GPUs once."""
    return tuple(
        _pair(calls, first, second, root) for n, first in enumerate(answering) for second in answering[n + 1 :]
    )


def _pair(calls: Calls, first: tuple[NvmlDevice, Gpu], second: tuple[NvmlDevice, Gpu], root: Path) -> Pair:
    (device, a), (peer_device, b) = first, second
    level = calls.between("nvmlDeviceGetTopologyCommonAncestor", device, peer_device)
    closeness = pci.closeness(a.pci_address, b.pci_address, root) if level is None else _ANCESTORS.get(level)
    status = calls.between("nvmlDeviceGetP2PStatus", device, peer_device, _READ)
    readable = status is not None and status != calls.nvml.NVML_P2P_STATUS_UNKNOWN
    return Pair(
        a.index, b.index, closeness, _between(a, b), status == calls.nvml.NVML_P2P_STATUS_OK if readable else None
    )


def _between(a: Gpu, b: Gpu) -> int:
    direct = sum(link.active and link.to == "gpu" and link.remote == b.pci_address for link in a.nvlinks)
    switched = (sum(link.active and link.to == "switch" for link in gpu.nvlinks) for gpu in (a, b))
    return direct + min(switched)
