"""Documents of single questions about the GPUs, and the files that a request names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.gpu import serialization
from paddock.gpu.errors import GpuInputError, NoGpu
from paddock.gpu.model import SCHEMA, Gpu, Inventory

if TYPE_CHECKING:
    from paddock.gpu.health.cuda import Compatibility


def info(inventory: Inventory, gpus: tuple[Gpu, ...]) -> dict[str, Any]:
    """Return all details of those GPUs."""
    return {"schema": SCHEMA, "reason": inventory.reason, "gpus": serialization.data(gpus)}


def memory(inventory: Inventory) -> dict[str, Any]:
    gpus = [
        {
            **_named(gpu),
            "memory": serialization.data(gpu.memory),
            "parts": [
                {"uuid": part.uuid, "profile": part.profile, "memory": serialization.data(part.memory)}
                for part in (gpu.mig.devices if gpu.mig else ())
            ],
        }
        for gpu in inventory.gpus
    ]
    return {"schema": SCHEMA, "unit": "MiB", "reason": inventory.reason, "gpus": gpus}


def processes(inventory: Inventory) -> dict[str, Any]:
    gpus = [{**_named(gpu), "processes": serialization.data(gpu.processes)} for gpu in inventory.gpus]
    return {"schema": SCHEMA, "reason": inventory.reason, "notes": list(inventory.notes), "gpus": gpus}


def topology(inventory: Inventory) -> dict[str, Any]:
    gpus = [{**_named(gpu), "numa_node": gpu.numa_node, "cpus": list(gpu.cpus)} for gpu in inventory.gpus]
    return {"schema": SCHEMA, "reason": inventory.reason, "gpus": gpus, "pairs": serialization.data(inventory.pairs)}


def cuda(inventory: Inventory, compatibility: Compatibility) -> dict[str, Any]:
    return {
        **serialization.data(compatibility),
        "driver_cuda": inventory.driver.cuda if inventory.driver else None,
        "installed": serialization.data(inventory.toolkit),
        "runtime": serialization.data(inventory.runtime),
        "reason": inventory.reason,
    }


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
        raise GpuInputError(f"{path} holds no JSON object\n    expected: {expected} as JSON")
    return value


def _named(gpu: Gpu) -> dict[str, Any]:
    return {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "state": gpu.state, "reason": gpu.reason}
