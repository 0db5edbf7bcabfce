"""The processes on each GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.console.report import Report
from paddock.console.table import table
from paddock.gpu import serialization
from paddock.gpu.model import Inventory
from paddock.gpu.views.gpus import UNKNOWN, amount, left_out, listing, named, notes


@dataclass(frozen=True, kw_only=True)
class ProcessesView(Report):
    """The processes on each GPU."""

    SCHEMA = 1
    inventory: Inventory

    def text(self) -> Iterator[str]:
        usable = self.inventory.usable
        if not usable:
            yield from listing(self.inventory)
            return
        unread = [gpu.index for gpu in usable if gpu.processes is None]
        rows = [
            (
                str(gpu.index),
                str(process.pid),
                process.kind,
                amount(process.memory),
                process.user or UNKNOWN,
                process.name or UNKNOWN,
            )
            for gpu in usable
            for process in gpu.processes or ()
        ]
        if rows:
            head = ("#", "pid", "kind", "MiB", "user", "name")
            yield from table(head, rows, right=("pid", "MiB"), drop=("kind", "user", "MiB", "name"))
        elif len(unread) < len(usable):
            yield "no process is on any GPU"
        if unread:
            yield f"unknown for GPU {', '.join(map(str, unread))}: its processes could not be read"
        yield from left_out(self.inventory)
        yield from notes(self.inventory)

    def document(self) -> dict[str, Any]:
        inventory = self.inventory
        gpus = [{**named(gpu), "processes": serialization.data(gpu.processes)} for gpu in inventory.gpus]
        return {"schema": self.SCHEMA, "reason": inventory.reason, "notes": list(inventory.notes), "gpus": gpus}
