"""A node before its first job: the memory it really reports, and how long it takes to start.

EC2 advertises a size of memory, firmware and kernel keep a part, and no API says how much before there is a node. The
parts of a cold start are published figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Mapping

Part = Literal["node", "plugin", "pull", "assign"]


def measured_memory_mib(name: str) -> int | None:
    """MiB that the kubelet of an instance type reports as capacity; None where no reading is public."""
    return readings().get(name)


@cache
def readings() -> Mapping[str, int]:
    """Measured capacity in MiB by instance type, rounded down; the lowest where there are several readings."""
    lowest: dict[str, int] = {}
    for row in _data.rows("node_memory.json"):
        mebibytes = row["memory_kib"] // 1024
        lowest[row["type"]] = min(mebibytes, lowest.get(row["type"], mebibytes))
    return MappingProxyType(lowest)


@dataclass(frozen=True, slots=True)
class Startup:
    """One part of a cold start, seconds. `image_gb` is the size that a pull was measured with, None for other parts."""

    key: Part
    os: Literal["al2023", "bottlerocket", "*"]
    low: float
    typical: float
    high: float
    image_gb: float | None
    what: str
    source: str

    def for_image(self, gigabytes: float) -> tuple[float, float, float]:
        """(low, typical, high) seconds; a pull in proportion to the size of the image."""
        scale = gigabytes / self.image_gb if self.image_gb else 1.0
        return self.low * scale, self.typical * scale, self.high * scale


@cache
def cold_start(os: Literal["al2023", "bottlerocket"]) -> tuple[Startup, ...]:
    """The parts of a cold start, in order: node, device plugin, image pull, assignment of the job."""
    return tuple(part for part in _data.records(Startup, "startup.json") if part.os in (os, "*"))
