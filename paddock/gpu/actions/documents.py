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


def info(found: Inventory, gpus: tuple[Gpu, ...]) -> dict[str, Any]:
    """All that is known of those GPUs."""
    return {"schema": SCHEMA, "reason": found.reason, "gpus": serialization.data(gpus)}


def memory(found: Inventory) -> dict[str, Any]:
    gpus = [
        {
            **_named(gpu),
            "memory": serialization.data(gpu.memory),
            "parts": [
                {"uuid": part.uuid, "profile": part.profile, "memory": serialization.data(part.memory)}
                for part in (gpu.mig.devices if gpu.mig else ())
            ],
        }
        for gpu in found.gpus
    ]
    return {"schema": SCHEMA, "unit": "MiB", "reason": found.reason, "gpus": gpus}


def processes(found: Inventory) -> dict[str, Any]:
    gpus = [{**_named(gpu), "processes": serialization.data(gpu.processes)} for gpu in found.gpus]
    return {"schema": SCHEMA, "reason": found.reason, "notes": list(found.notes), "gpus": gpus}


def topology(found: Inventory) -> dict[str, Any]:
    gpus = [{**_named(gpu), "numa_node": gpu.numa_node, "cpus": list(gpu.cpus)} for gpu in found.gpus]
    return {"schema": SCHEMA, "reason": found.reason, "gpus": gpus, "pairs": serialization.data(found.pairs)}


def cuda(found: Inventory, judged: Compatibility) -> dict[str, Any]:
    return {
        **serialization.data(judged),
        "driver_cuda": found.driver.cuda if found.driver else None,
        "installed": serialization.data(found.toolkit),
        "runtime": serialization.data(found.runtime),
        "reason": found.reason,
    }


def pick(found: Inventory, which: str) -> Gpu:
    """The GPU of that index, or of the UUID that starts so. Raises NoGpu and GpuInputError."""
    if not found.gpus:
        raise NoGpu(found.reason or "no GPU was found")
    if which.isdecimal():
        fitting = [gpu for gpu in found.gpus if gpu.index == int(which)]
    else:
        fitting = [gpu for gpu in found.gpus if gpu.uuid and gpu.uuid.casefold().startswith(which.casefold())]
    if len(fitting) != 1:
        there = ", ".join(f"{gpu.index} ({gpu.uuid or gpu.state})" for gpu in found.gpus)
        many = "more than one GPU is" if fitting else "no GPU is"
        raise GpuInputError(f"{many} {which!r}\n    expected: an index, or how a UUID starts, of {there}")
    return fitting[0]


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
