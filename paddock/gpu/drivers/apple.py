"""Apple GPUs, read from the output of macOS's own programs, none of which needs root."""

from __future__ import annotations

import json
import plistlib
from typing import Any
from xml.parsers.expat import ExpatError

from paddock.gpu.drivers.base import DriverUnavailable, Reading
from paddock.gpu.host import machine
from paddock.gpu.host.machine import Run
from paddock.gpu.model import Gpu, Memory, Utilisation

_MIB = 1 << 20
_DISPLAYS = ["system_profiler", "SPDisplaysDataType", "-json"]
_ACCELERATOR = ["ioreg", "-a", "-r", "-d", "1", "-c", "IOAccelerator"]
_PLATFORM = ["ioreg", "-a", "-r", "-d", "1", "-c", "IOPlatformExpertDevice"]
_MEMORY = ["sysctl", "-n", "hw.memsize"]


class Apple:
    """The GPU of an Apple chip, whose memory is the machine's own."""

    def __init__(self, run: Run = machine.run) -> None:
        self._run = run

    def read(self, *, processes: bool = False, topology: bool = False) -> Reading:
        """Return the GPUs; macOS reports neither the processes on them nor their memory."""
        displays = _displays(self._run(_DISPLAYS))
        if not displays:
            raise DriverUnavailable("macOS lists no GPU of an Apple chip (`system_profiler SPDisplaysDataType`).")
        used, busy = self._statistics()
        total = int(self._run(_MEMORY) or 0) // _MIB
        memory = Memory(total, used, total - used) if total and used is not None else None
        uuid = _first(_plist(self._run(_PLATFORM))).get("IOPlatformUUID")
        gpus = tuple(
            Gpu(
                index,
                f"APPLE-{uuid}-{index}" if uuid else None,
                display.get("sppci_model"),
                "apple",
                compute_capability=str(display.get("spdisplays_mtlgpufamilysupport", "")).rpartition("_")[2] or None,
                cores=_number(display.get("sppci_cores")),
                memory=memory,
                unified_memory=True,
                utilisation=Utilisation(busy),
            )
            for index, display in enumerate(displays)
        )
        return Reading("apple", gpus)

    def _statistics(self) -> tuple[int | None, int | None]:
        """Return the memory in use by the GPU in MiB, and its utilisation in per cent."""
        statistics = _first(_plist(self._run(_ACCELERATOR))).get("PerformanceStatistics", {})
        used = statistics.get("In use system memory", statistics.get("Alloc system memory"))
        return None if used is None else used // _MIB, statistics.get("Device Utilization %")


def _displays(text: str | None) -> list[dict[str, Any]]:
    try:
        displays = json.loads(text or "{}").get("SPDisplaysDataType", [])
    except ValueError:
        return []
    return [display for display in displays if display.get("spdisplays_vendor") == "sppci_vendor_Apple"]


def _plist(text: str | None) -> list[dict[str, Any]]:
    try:
        entries = plistlib.loads((text or "").encode())
    except (plistlib.InvalidFileException, ExpatError, ValueError):
        return []
    return entries if isinstance(entries, list) else []


def _first(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return entries[0] if entries else {}


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None
