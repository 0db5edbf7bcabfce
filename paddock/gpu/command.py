"""What `inv gpu.*` prints, without Invoke."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paddock.gpu import detect, document, show
from paddock.gpu.errors import GpuInputError, NoGpu
from paddock.gpu.model import Gpu, Inventory

SCHEMA = 1


def inventory(source: Path | None, *, processes: bool = False, topology: bool = False) -> Inventory:
    """Of this machine, or the saved one of another. Raises GpuInputError."""
    if source is not None:
        return document.load(source)
    return detect.inventory(processes=processes, topology=topology)


def list_gpus(source: Path | None = None, *, as_json: bool = False) -> None:
    """Every GPU, usable or not. A machine without any is no error."""
    # A file that others read holds all that they may ask of it.
    found = inventory(source, processes=as_json, topology=as_json)
    if as_json:
        sys.stdout.write(document.dumps(found))
    else:
        _lines(show.listing(found))


def info(which: str = "", source: Path | None = None, *, as_json: bool = False) -> None:
    """All that is known of each GPU, or of the one that is named. Raises NoGpu and GpuInputError."""
    found = inventory(source)
    gpus = (pick(found, which),) if which else found.gpus
    if as_json:
        _json({"reason": found.reason, "gpus": document.data(gpus)})
        return
    if not gpus:
        _lines(show.listing(found))
    for number, gpu in enumerate(gpus):
        _lines(("", *show.details(gpu)) if number else show.details(gpu))


def memory_info(source: Path | None = None, *, as_json: bool = False) -> None:
    found = inventory(source)
    if as_json:
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
        _json({"unit": "MiB", "reason": found.reason, "gpus": gpus})
    else:
        _lines(show.memory(found) if found.usable else show.listing(found))


def processes(source: Path | None = None, *, as_json: bool = False) -> None:
    found = inventory(source, processes=True)
    if as_json:
        gpus = [{**_named(gpu), "processes": document.data(gpu.processes)} for gpu in found.gpus]
        _json({"reason": found.reason, "notes": list(found.notes), "gpus": gpus})
    else:
        _lines(show.processes(found) if found.usable else show.listing(found))


def topology(source: Path | None = None, *, as_json: bool = False) -> None:
    found = inventory(source, topology=True)
    if as_json:
        gpus = [{**_named(gpu), "numa_node": gpu.numa_node, "cpus": list(gpu.cpus)} for gpu in found.gpus]
        _json({"reason": found.reason, "gpus": gpus, "pairs": document.data(found.pairs)})
    else:
        _lines(show.topology(found) if found.usable else show.listing(found))


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


def _lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _json(told: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps({'schema': SCHEMA, **told}, indent=2)}\n")
