"""Memory that booted nodes really report: EC2 advertises a size, firmware and kernel keep a part, and no API says how
much before there is a node."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Mapping


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
