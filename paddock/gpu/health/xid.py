"""Xids and SXids, the driver's errors of GPUs and of NVSwitches: events from the lines of the kernel log.

The meaning, severity and action of each number are in `paddock/catalog/data`, xids.json and sxids.json: a new one is
one entry there. Only an event that the driver logs without a number, or whose text carries data, needs code here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from paddock.gpu.host.kernel_log import Line
from paddock.gpu.model import RecoveryAction

# Only lines that start with the driver's prefix: the name of a process may contain the text of an Xid.
# Within the brackets, the address may be followed by a MIG part.
_XID = re.compile(r"NVRM: Xid \(((?:PCI:)?[0-9a-fA-F]+(?::[0-9a-fA-F]+){1,2}(?:\.[0-9])?)(?: [^)]*)?\).*?: (\d+),")
_FELL_OFF = re.compile(r"NVRM: (?:The NVIDIA )?GPU ((?:[0-9a-fA-F]+:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)(.*)")
_FELL_OFF_CONTINUED = re.compile(r"NVRM: .*fallen off the bus")
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \((PCI:[0-9a-fA-F:.]+)\): (\d+), (Fatal|Non-fatal), (.*)")
_OFF_THE_BUS = 79
_RECOVERY_CHANGED = re.compile(r"recovery action changed from 0x[0-9a-f]+ .*? to 0x([0-9a-f]+)", re.IGNORECASE)
_RECOVERY_ACTIONS: tuple[RecoveryAction, ...] = (
    "none", "gpu-reset", "node-reboot", "drain-p2p", "drain-and-reset", "recover-imex", "bus-reset", "system-reboot",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One Xid in the log: `pci_address` has the inventory's form, `0000:04:00.0`."""

    code: int
    pci_address: str
    at: datetime | None
    text: str

    @property
    def recovery_action(self) -> RecoveryAction | None:
        """The action that the driver requests from then on; only Xid 154 carries one."""
        match = _RECOVERY_CHANGED.search(self.text) if self.code == 154 else None
        number = int(match[1], 16) if match else len(_RECOVERY_ACTIONS)
        return _RECOVERY_ACTIONS[number] if number < len(_RECOVERY_ACTIONS) else None


@dataclass(frozen=True, slots=True)
class SxidEvent:
    """One SXid in the log. `pci_address` is that of the switch; `fatal` and `about` are the driver's words."""

    code: int
    pci_address: str
    at: datetime | None
    fatal: bool
    about: str


Event = XidEvent | SxidEvent


def events(lines: Iterable[Line]) -> tuple[Event, ...]:
    """Return events in the order of the log. A GPU that fell off the bus counts as Xid 79."""
    result: list[Event] = []
    open_address: str | None = None
    """The GPU of a message that spans several lines."""
    for line in lines:
        if match := _XID.match(line.text):
            result.append(XidEvent(int(match[2]), address(match[1]), line.at, line.text))
            open_address = None
            continue
        if match := _SXID.match(line.text):
            about = match[4].strip()
            result.append(SxidEvent(int(match[2]), address(match[1]), line.at, match[3] == "Fatal", about))
        if match := _FELL_OFF.match(line.text):
            open_address = match[1]
        if open_address and _FELL_OFF_CONTINUED.match(line.text):
            pci_address = address(open_address)
            if not any(event.code == _OFF_THE_BUS and event.pci_address == pci_address for event in result):
                result.append(XidEvent(_OFF_THE_BUS, pci_address, line.at, line.text))
            open_address = None
    return tuple(result)


def address(text: str) -> str:
    """Return `0000:04:00.0` for `PCI:0000:04:00`, `04:00.0` and similar forms."""
    place, _, function = text.removeprefix("PCI:").lower().partition(".")
    parts = place.split(":")
    domain = parts[-3] if len(parts) > 2 else "0"
    if len(parts) < 2:
        return place
    return f"{int(domain, 16):04x}:{parts[-2]:0>2}:{parts[-1]:0>2}.{function or 0}"
