"""What is known of the GPUs, one question at a time, as plain documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddock.gpu import serialization
from paddock.gpu.errors import GpuInputError, NoGpu
from paddock.gpu.model import Gpu, Inventory

if TYPE_CHECKING:
    from paddock.gpu.health.cuda import Compatibility
    from paddock.gpu.leases.selection import Choice

SCHEMA = 1


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


def choice(found: Choice) -> dict[str, Any]:
    """Why each GPU was taken or refused; the parts of `score` are 0 to 1000."""
    return {
        "taken": [{**serialization.data(one), "score": dict(one.score)} for one in found.taken],
        "refused": [
            {"index": one.index, "uuid": one.uuid, "reason": one.reason, "passing": one.transient}
            for one in found.refused
        ],
        "why": found.why,
        "notes": list(found.notes),
    }


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


def _named(gpu: Gpu) -> dict[str, Any]:
    return {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "state": gpu.state, "reason": gpu.reason}
