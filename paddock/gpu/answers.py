"""What is known of the GPUs, one question at a time, as plain documents."""

from __future__ import annotations

from typing import Any

from paddock.gpu import document
from paddock.gpu.model import Gpu, Inventory

SCHEMA = 1


def info(found: Inventory, gpus: tuple[Gpu, ...]) -> dict[str, Any]:
    """All that is known of those GPUs."""
    return {"schema": SCHEMA, "reason": found.reason, "gpus": document.data(gpus)}


def memory(found: Inventory) -> dict[str, Any]:
    gpus = [
        {
            **_named(gpu),
            "memory": document.data(gpu.memory),
            "parts": [
                {"uuid": part.uuid, "profile": part.profile, "memory": document.data(part.memory)}
                for part in (gpu.mig.devices if gpu.mig else ())
            ],
        }
        for gpu in found.gpus
    ]
    return {"schema": SCHEMA, "unit": "MiB", "reason": found.reason, "gpus": gpus}


def processes(found: Inventory) -> dict[str, Any]:
    gpus = [{**_named(gpu), "processes": document.data(gpu.processes)} for gpu in found.gpus]
    return {"schema": SCHEMA, "reason": found.reason, "notes": list(found.notes), "gpus": gpus}


def topology(found: Inventory) -> dict[str, Any]:
    gpus = [{**_named(gpu), "numa_node": gpu.numa_node, "cpus": list(gpu.cpus)} for gpu in found.gpus]
    return {"schema": SCHEMA, "reason": found.reason, "gpus": gpus, "pairs": document.data(found.pairs)}


def _named(gpu: Gpu) -> dict[str, Any]:
    return {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "state": gpu.state, "reason": gpu.reason}
