"""View of a test job: the program that it runs, and what that program reports of its GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paddock.errors import one_line
from paddock.gpu import serialization
from paddock.gpu.errors import GpuError
from paddock.gpu.host.visibility import visible
from paddock.gpu.model import Inventory

END = "== end"
PROGRAM = Path(__file__).with_suffix(".sh").read_text(encoding="utf-8")
_RANGE = re.compile(r"(.*)\[([\d,-]+)\]")
_NOTHING = ("", "NoDevFiles", "-1", "void", "none")


@dataclass(frozen=True, slots=True)
class Seen:
    """View of one job. `uuids` is None where no driver answers in it."""

    job: str
    node: str
    numbers: tuple[str, ...]
    """Numbers of its GPUs on the node, as Slurm counts them."""
    visible: tuple[str, ...]
    """Value of CUDA_VISIBLE_DEVICES, or for AMD ROCR_VISIBLE_DEVICES."""
    files: tuple[str, ...] = ()
    """Device files of these numbers, as far as slurmd says them."""
    absent: tuple[str, ...] = ()
    """Those of them that are not there."""
    uuids: tuple[str, ...] | None = None
    notes: tuple[str, ...] = field(default=())


def parse(text: str) -> Seen:
    """Parse what the program printed."""
    head, _, rest = text.partition("== inventory\n")
    values: dict[str, list[str]] = {}
    for line in head.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            values.setdefault(key, []).append(value.strip())

    def single(key: str) -> str:
        return values.get(key, [""])[0]

    environ = {"CUDA_VISIBLE_DEVICES": single("cuda"), "ROCR_VISIBLE_DEVICES": single("rocr")}
    environ = {name: value for name, value in environ.items() if value}
    numbers = tuple(part for part in single("gpus").split(",") if part)
    by_number = dict(_files(values.get("gres", [])))
    files = tuple(by_number[number] for number in numbers if number in by_number)
    uuids, notes = _uuids(rest.partition(END)[0], environ)
    shown = next(iter(environ.values()), "")
    return Seen(
        job=single("job"),
        node=single("node"),
        numbers=numbers,
        visible=() if shown in _NOTHING else tuple(shown.split(",")),
        files=files,
        absent=tuple(file for file in files if file not in values.get("device", [])),
        uuids=uuids,
        notes=notes,
    )


def _uuids(text: str, environ: dict[str, str]) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the UUIDs of the GPUs that programs of the job see; None where no driver says them, and why."""
    if not text.strip():
        return None, ("no paddock in the job, so that no driver was asked",)
    try:
        inventory = serialization.loads(text)
    except GpuError as error:
        return None, (one_line(str(error)),)
    if not inventory.gpus:
        return None, (inventory.reason or "the job's driver lists no GPU",)
    shown = visible(inventory, environ)
    return tuple(uuid for uuid in _devices(inventory) if shown is None or uuid in shown.uuids), ()


def _devices(inventory: Inventory) -> Iterator[str]:
    for gpu in inventory.gpus:
        parts = gpu.mig.devices if gpu.mig and gpu.mig.enabled else ()
        yield from (part.uuid for part in parts) if parts else (str(gpu.uuid),)


def _files(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the device file of each GPU by its number, from the lines of `slurmd -G`."""
    for line in lines:
        index, file = re.search(r"\bIndex=(\d+)", line), re.search(r"\bFile=(\S+)", line)
        if index and file:
            for offset, path in enumerate(_expanded(file[1])):
                yield str(int(index[1]) + offset), path


def _expanded(path: str) -> Iterator[str]:
    match = _RANGE.fullmatch(path)
    if not match:
        yield path
        return
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        yield from (f"{match[1]}{number}" for number in range(int(first), int(last or first) + 1))
