"""Driver and CUDA toolkit, and whether they and the GPUs fit together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.console.report import Report
from paddock.gpu import serialization
from paddock.gpu.health.cuda import Compatibility
from paddock.gpu.model import Inventory


@dataclass(frozen=True, kw_only=True)
class CudaView(Report):
    """Driver and CUDA toolkit, and whether they and the GPUs fit together."""

    SCHEMA = 1
    inventory: Inventory
    compatibility: Compatibility

    def text(self) -> Iterator[str]:
        if driver := self.inventory.driver:
            yield f"driver   {driver.version}{f', supports CUDA {driver.cuda}' if driver.cuda else ''}"
        if toolkit := self.inventory.toolkit:
            yield f"toolkit  {toolkit.version} in {toolkit.path}"
        yield f"{self.compatibility.verdict}: {self.compatibility.why}"
        yield from (f"    fix: {fix.text}" for fix in self.compatibility.fixes)

    def document(self) -> dict[str, Any]:
        inventory = self.inventory
        return {
            "schema": self.SCHEMA,
            **serialization.data(self.compatibility),
            "driver_cuda": inventory.driver.cuda if inventory.driver else None,
            "installed": serialization.data(inventory.toolkit),
            "runtime": serialization.data(inventory.runtime),
            "reason": inventory.reason,
        }
