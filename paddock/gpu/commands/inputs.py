"""Inputs of the commands on GPUs: this machine or a saved inventory, a GPU of it, and files of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.console.parameters import Parameters, parameter
from paddock.gpu.errors import GpuInputError, NoGpu

if TYPE_CHECKING:
    from paddock.gpu.model import Gpu, Inventory


@dataclass(frozen=True, kw_only=True)
class OfMachine(Parameters):
    """Parameters of a command that reads the GPUs of this machine, or of one whose inventory was saved."""

    source: Path | None = parameter(
        None, "a saved inventory (gpu.list --json) instead of this machine", flag="from", only="flags"
    )

    def inventory(self, *, processes: bool = False, topology: bool = False, programs: bool = False) -> Inventory:
        """Read the GPUs. Raises GpuInputError for a saved inventory that cannot be read, else DriverHangs."""
        from paddock.gpu import inventory, serialization
        from paddock.gpu.host import bounded

        if self.source:
            return serialization.load(self.source)
        return bounded.answer(lambda: inventory.inventory(processes=processes, topology=topology, programs=programs))


def pick(inventory: Inventory, selector: str) -> Gpu:
    """Return the GPU of that index, or of the UUID that starts so. Raises NoGpu and GpuInputError."""
    if not inventory.gpus:
        raise NoGpu(inventory.reason or "no GPU was found")
    if selector.isdecimal():
        matching = [gpu for gpu in inventory.gpus if gpu.index == int(selector)]
    else:
        matching = [gpu for gpu in inventory.gpus if gpu.uuid and gpu.uuid.casefold().startswith(selector.casefold())]
    if len(matching) != 1:
        available = ", ".join(f"{gpu.index} ({gpu.uuid or gpu.state})" for gpu in inventory.gpus)
        many = "more than one GPU is" if matching else "no GPU is"
        raise GpuInputError(f"{many} {selector!r}\n    expected: an index, or how a UUID starts, of {available}")
    return matching[0]


def read_object(path: Path, expected: str) -> dict[str, Any]:
    """Read a JSON file whose value is an object. Raises GpuInputError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GpuInputError(f"cannot read {path}: {error.strerror}\n    expected: {expected} as JSON") from None
    except ValueError as error:
        raise GpuInputError(f"{path} is not JSON: {error}\n    expected: {expected} as JSON") from None
    if not isinstance(value, dict):
        raise GpuInputError(f"{path} does not hold a JSON object\n    expected: {expected} as JSON")
    return value
