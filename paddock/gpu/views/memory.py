"""The memory of each GPU and MIG part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.console.report import Report
from paddock.console.table import table
from paddock.gpu import serialization
from paddock.gpu.model import Inventory
from paddock.gpu.views.gpus import amount, left_out, listing, named

_SIZES = ("total", "used", "free", "reserved")


@dataclass(frozen=True, kw_only=True)
class MemoryView(Report):
    """The memory of each GPU and MIG part, in MiB."""

    SCHEMA = 1
    inventory: Inventory

    def text(self) -> Iterator[str]:
        if not self.inventory.usable:
            yield from listing(self.inventory)
            return
        rows = []
        for gpu in self.inventory.usable:
            parts = gpu.mig.devices if gpu.mig else ()
            for number, name, memory in (
                (str(gpu.index), gpu.name or "", gpu.memory),
                *(("", f"{part.profile} {part.uuid}", part.memory) for part in parts),
            ):
                rows.append((number, name, *(amount(getattr(memory, size, None)) for size in _SIZES)))
        yield from table(("#", "GPU", *_SIZES), rows, right=_SIZES)
        yield "MiB. What the driver keeps for itself is reserved, not used."
        yield from left_out(self.inventory)

    def document(self) -> dict[str, Any]:
        gpus = [
            {
                **named(gpu),
                "memory": serialization.data(gpu.memory),
                "parts": [
                    {"uuid": part.uuid, "profile": part.profile, "memory": serialization.data(part.memory)}
                    for part in (gpu.mig.devices if gpu.mig else ())
                ],
            }
            for gpu in self.inventory.gpus
        ]
        return {"schema": self.SCHEMA, "unit": "MiB", "reason": self.inventory.reason, "gpus": gpus}
