"""Xids, the driver's errors, from the lines of the kernel log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from paddock.gpu.host.kernel_log import Line
from paddock.gpu.model import RecoveryAction

# Only lines that the driver began: the name of a process may hold anything, also the text of an Xid.
# Within the brackets, a MIG part is named after the address.
_XID = re.compile(r"NVRM: Xid \(((?:PCI:)?[0-9a-fA-F]+(?::[0-9a-fA-F]+){1,2}(?:\.[0-9])?)(?: [^)]*)?\).*?: (\d+),")
_FALLEN = re.compile(r"NVRM: (?:The NVIDIA )?GPU ((?:[0-9a-fA-F]+:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)(.*)")
_FALLEN_NEXT = re.compile(r"NVRM: .*fallen off the bus")
_OFF_THE_BUS = 79
_CHANGED = re.compile(r"recovery action changed from 0x[0-9a-f]+ .*? to 0x([0-9a-f]+)", re.IGNORECASE)
_RECOVERY: tuple[RecoveryAction, ...] = (
    "none", "gpu-reset", "node-reboot", "drain-p2p", "drain-and-reset", "recover-imex", "bus-reset", "system-reboot",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class XidEvent:
    """`pci_address` is as the inventory writes it, `0000:04:00.0`."""

    code: int
    pci_address: str
    at: datetime | None
    text: str

    @property
    def recovery_action(self) -> RecoveryAction | None:
        """What the driver asks for from then on, where this is an Xid 154, which says so."""
        found = _CHANGED.search(self.text) if self.code == 154 else None
        number = int(found[1], 16) if found else len(_RECOVERY)
        return _RECOVERY[number] if number < len(_RECOVERY) else None


def events(lines: Iterable[Line]) -> tuple[XidEvent, ...]:
    """In the order of the log. A GPU that fell off the bus is an Xid 79, also where the driver writes no number."""
    found: list[XidEvent] = []
    named: str | None = None
    """The GPU that a message of several lines is about."""
    for line in lines:
        if match := _XID.match(line.text):
            found.append(XidEvent(int(match[2]), address(match[1]), line.at, line.text))
            named = None
            continue
        if match := _FALLEN.match(line.text):
            named = match[1]
        if named and _FALLEN_NEXT.match(line.text):
            where = address(named)
            if not any(one.code == _OFF_THE_BUS and one.pci_address == where for one in found):
                found.append(XidEvent(_OFF_THE_BUS, where, line.at, line.text))
            named = None
    return tuple(found)


def address(text: str) -> str:
    """`0000:04:00.0` from `PCI:0000:04:00`, `04:00.0` and the like."""
    place, _, function = text.removeprefix("PCI:").lower().partition(".")
    parts = place.split(":")
    domain = parts[-3] if len(parts) > 2 else "0"
    if len(parts) < 2:
        return place
    return f"{int(domain, 16):04x}:{parts[-2]:0>2}:{parts[-1]:0>2}.{function or 0}"
