"""Docker engine as `docker info` describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DESKTOP = "docker desktop"


@dataclass(frozen=True, slots=True)
class Engine:
    """Facts of the engine's machine. Docker Desktop's is a virtual machine with part of the computer's memory."""

    name: str
    version: str
    cpus: int
    memory_mib: int
    runtimes: tuple[str, ...] = ()
    default_runtime: str = ""
    desktop: bool = False
    rootless: bool = False
    cgroup_driver: str = ""
    cgroup_version: str = ""
    devices: tuple[str, ...] = ()
    """CDI devices that the engine lists; engines before 28.3 list none."""

    @classmethod
    def parse(cls, info: Mapping[str, Any]) -> Engine:
        """Read the document of `docker info --format '{{json .}}'`."""
        runtimes = info.get("Runtimes")
        discovered = info.get("DiscoveredDevices")
        return cls(
            name=str(info.get("Name") or ""),
            version=str(info.get("ServerVersion") or ""),
            cpus=int(info.get("NCPU") or 0),
            memory_mib=int(info.get("MemTotal") or 0) // 2**20,
            runtimes=tuple(sorted(runtimes)) if isinstance(runtimes, dict) else (),
            default_runtime=str(info.get("DefaultRuntime") or ""),
            desktop=_DESKTOP in str(info.get("OperatingSystem") or "").lower(),
            rootless=any("rootless" in str(option) for option in info.get("SecurityOptions") or ()),
            cgroup_driver=str(info.get("CgroupDriver") or ""),
            cgroup_version=str(info.get("CgroupVersion") or ""),
            devices=tuple(
                str(device.get("ID")) for device in discovered or () if isinstance(device, dict) and device.get("ID")
            ),
        )
