"""What `inv gpu.*` prints, without Invoke."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.gpu import inventory as detect
from paddock.gpu import serialization
from paddock.gpu.actions import documents
from paddock.gpu.actions import text as show
from paddock.gpu.errors import NoGpu
from paddock.gpu.model import Inventory

if TYPE_CHECKING:
    from paddock.gpu.leases.request import Request

SCHEMA = 1


def inventory(source: Path | None, *, processes: bool = False, topology: bool = False) -> Inventory:
    """Of this machine, or the saved one of another. Raises GpuInputError."""
    if source is not None:
        return serialization.load(source)
    return detect.inventory(processes=processes, topology=topology)


def list_gpus(source: Path | None = None, *, as_json: bool = False) -> None:
    """Every GPU, usable or not. A machine without any is no error."""
    # A file that others read holds all that they may ask of it.
    found = inventory(source, processes=as_json, topology=as_json)
    if as_json:
        sys.stdout.write(serialization.dumps(found))
    else:
        write_lines(show.listing(found))


def info(which: str = "", source: Path | None = None, *, as_json: bool = False) -> None:
    """All that is known of each GPU, or of the one that is named. Raises NoGpu and GpuInputError."""
    found = inventory(source)
    with said(as_json):
        gpus = (documents.pick(found, which),) if which else found.gpus
    if as_json:
        write_json(documents.info(found, gpus))
        return
    if not gpus:
        write_lines(show.listing(found))
    for number, gpu in enumerate(gpus):
        write_lines(("", *show.details(gpu)) if number else show.details(gpu))


def memory_info(source: Path | None = None, *, as_json: bool = False) -> None:
    found = inventory(source)
    if as_json:
        write_json(documents.memory(found))
    else:
        write_lines(show.memory(found) if found.usable else show.listing(found))


def processes(source: Path | None = None, *, as_json: bool = False) -> None:
    found = inventory(source, processes=True)
    if as_json:
        write_json(documents.processes(found))
    else:
        write_lines(show.processes(found) if found.usable else show.listing(found))


def topology(source: Path | None = None, *, as_json: bool = False) -> None:
    found = inventory(source, topology=True)
    if as_json:
        write_json(documents.topology(found))
    else:
        write_lines(show.topology(found) if found.usable else show.listing(found))


def request(
    *,
    gpus: int = 1,
    min_memory: float = 0,
    max_utilisation: float = 100,
    prefer: str = "",
    exclude: str = "",
    max_power: float = 0,
    workload: str = "",
    share: float = 0,
    near: str = "",
    uuids: str = "",
    mig: str = "",
) -> Request:
    """From flags: empty text and nought are no wish. Raises GpuInputError."""
    from paddock.gpu.leases.request import Request

    return Request.from_dict(
        {
            "count": gpus,
            "min_memory_gib": min_memory,
            "max_utilisation": None if max_utilisation == 100 else max_utilisation,
            "prefer": _names(prefer),
            "exclude": _names(exclude),
            "max_power_w": max_power or None,
            "workload": workload or None,
            "share": share or None,
            "near": near or "none",
            "uuids": _names(uuids),
            "mig": mig or None,
        }
    )


def allocate(wanted: Request, *, owner: int | None, ttl: float | None, wait: float, as_json: bool = False) -> None:
    """Leases GPUs. Raises NoneFree and GpuInputError."""
    from paddock.gpu.leases import allocation as leasing
    from paddock.gpu.leases.manager import NoneFree

    try:
        told = leasing.allocate(wanted, owner=owner, ttl=ttl, wait=wait)
    except NoneFree as none:
        if as_json:
            write_json({"lease": None, **documents.choice(none.choice)})
        raise
    if as_json:
        write_json(told)
        return
    for one in told["taken"]:
        sys.stderr.write(f"{one['uuid']}: {one['reason']}\n")
    for note in told["notes"]:
        sys.stderr.write(f"note: {note}\n")
    sys.stdout.write(leasing.exports(told["environment"]))


def choice(wanted: Request, source: Path, *, as_json: bool = False) -> None:
    """Which GPUs of a saved inventory would be leased, were none of them yet. Raises NoneFree and GpuInputError."""
    from paddock.gpu.leases.manager import NoneFree
    from paddock.gpu.leases.request import within_limit
    from paddock.gpu.leases.selection import choose

    within_limit(wanted)
    found = choose(serialization.load(source), wanted)
    if as_json:
        write_json({"lease": None, **documents.choice(found)})
    if not found.satisfied:
        raise NoneFree(found)
    if not as_json:
        write_lines([str(found), "nothing was leased: these are another machine's"])


def deallocate(which: str, *, as_json: bool = False) -> None:
    """Gives leases back. Raises GpuInputError."""
    from paddock.gpu.leases import allocation as leasing

    told = leasing.deallocate(_names(which))
    if as_json:
        write_json(told)
    else:
        write_lines(f"{lease['id']} is given back" for lease in told["released"])


def renew(which: str, ttl: float | None, *, as_json: bool = False) -> None:
    """Lets leases live on. Raises GpuInputError."""
    from paddock.gpu.leases import allocation as leasing

    told = leasing.renew(_names(which), ttl)
    if as_json:
        write_json(told)
    else:
        write_lines(f"{lease['id']} is renewed" for lease in told["renewed"])


def leases(*, as_json: bool = False) -> None:
    from paddock.gpu.leases import allocation as leasing

    told = leasing.list_leases()
    if as_json:
        write_json(told)
    elif not told["leases"]:
        write_lines([f"no GPU is leased ({told['folder']})"])
    else:
        write_lines(show.leases(told["leases"]))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@contextmanager
def said(as_json: bool) -> Iterator[None]:
    """That there is no GPU is an answer to those who read JSON, and then goes on as the error it is."""
    try:
        yield
    except NoGpu as none:
        if as_json:
            sys.stdout.write(f"{json.dumps({'schema': SCHEMA, 'reason': str(none), 'gpus': []})}\n")
        raise


def write_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def write_json(told: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps({'schema': SCHEMA, **told}, indent=2)}\n")
