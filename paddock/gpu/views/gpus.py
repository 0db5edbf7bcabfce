"""The GPUs of a machine, a line each. Plain lines: a table library would cost more than reading the GPUs does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from paddock.console.table import table
from paddock.gpu.model import Gpu, Inventory, MigDevice
from paddock.gpu.report import ValueReport

UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the list; `of_part` is its value for a MIG part."""

    title: str
    of: Callable[[Gpu], str]
    of_part: Callable[[MigDevice], str] = lambda _: UNKNOWN
    is_number: bool = True


COLUMNS = {
    "index": Column("#", lambda gpu: str(gpu.index), lambda _: "", is_number=False),
    "name": Column("GPU", lambda gpu: _name(gpu), lambda part: f"  {part.profile}", is_number=False),
    "memory": Column("memory in MiB", lambda gpu: _memory(gpu), lambda part: _memory(part)),
    "use": Column("use", lambda gpu: amount(gpu.utilisation.gpu, " %")),
    "temperature": Column("°C", lambda gpu: amount(gpu.temperature.gpu)),
    "power": Column("watt", lambda gpu: f"{amount(gpu.power.draw)} / {amount(gpu.power.limit)}"),
    "uuid": Column("UUID", lambda gpu: gpu.uuid or UNKNOWN, lambda part: part.uuid, is_number=False),
    "state": Column("state", lambda gpu: gpu.state, is_number=False),
    "pci": Column("PCI", lambda gpu: gpu.pci_address or UNKNOWN, is_number=False),
    "serial": Column("serial", lambda gpu: gpu.serial or UNKNOWN, is_number=False),
    "numa": Column("NUMA", lambda gpu: amount(gpu.numa_node)),
}
_USUAL = ("index", "name", "memory", "use", "temperature", "power", "uuid")


@dataclass(frozen=True, kw_only=True)
class GpusView(ValueReport):
    """The GPUs of a machine: the document is its whole inventory. `columns` are names in COLUMNS."""

    value: Inventory
    columns: tuple[str, ...] = ()

    def text(self) -> Iterator[str]:
        return listing(self.value, self.columns)


def listing(inventory: Inventory, columns: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield one line a GPU, and one a part of it; with `columns` those alone."""
    if inventory.gpus:
        yield _head(inventory)
        shown = [COLUMNS[name] for name in columns or _USUAL]
        rows = []
        for gpu in inventory.gpus:
            whole = bool(columns) or gpu.state == "ok"
            rows.append([column.of(gpu) for column in shown] if whole else [str(gpu.index), _unusable(gpu)])
            rows += [[column.of_part(part) for column in shown] for part in (gpu.mig.devices if gpu.mig else ())]
        yield from table(
            [column.title for column in shown], rows, right=[column.title for column in shown if column.is_number]
        )
        yield from left_out(inventory) if columns else ()
    else:
        yield inventory.reason or "no GPU was found"
    yield from notes(inventory)


def _head(inventory: Inventory) -> str:
    """Count of the GPUs, and their driver."""
    count, driver = len(inventory.gpus), inventory.driver
    lost = sum(gpu.state != "ok" for gpu in inventory.gpus)
    parts = [f"{count} GPU{'' if count == 1 else 's'}{f', {lost} of them not usable' if lost else ''}"]
    if driver:
        parts += [f"driver {driver.version}", *([f"CUDA {driver.cuda}"] if driver.cuda else [])]
    return "   ".join((*parts, inventory.machine.name))


def notes(inventory: Inventory) -> Iterator[str]:
    for note in inventory.notes:
        yield f"note: {note}"


def left_out(inventory: Inventory) -> Iterator[str]:
    """Yield the GPUs that a table of the usable ones omits."""
    for gpu in inventory.gpus:
        if gpu.state != "ok":
            yield f"GPU {gpu.index} is not usable: {state(gpu)}"


def state(gpu: Gpu) -> str:
    """Return the state of a GPU that is not usable, with its reason."""
    return f"{gpu.state}: {gpu.reason or 'no reason is known'}"


def named(gpu: Gpu) -> dict[str, Any]:
    """Return the keys of documents that tell which GPU it is, and whether it is usable."""
    return {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "state": gpu.state, "reason": gpu.reason}


def amount(value: float | None, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:.0f}{unit}"


def _name(gpu: Gpu) -> str:
    return gpu.name or gpu.pci_address or "unknown"


def _unusable(gpu: Gpu) -> str:
    return f"{_name(gpu)}: {state(gpu)}"


def _memory(of: Gpu | MigDevice) -> str:
    return f"{of.memory.used} / {of.memory.total}" if of.memory else UNKNOWN
