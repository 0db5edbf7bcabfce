"""Safe replacement of generated files: a customised one stays, an edited one is kept as a backup, all or none."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paddock.gpu import serialization
from paddock.gpu.errors import GpuError
from paddock.gpu.model import Inventory
from paddock.gpu.render.output import write
from paddock.gpu.render.rendered import File, Rendered, customised, unedited
from paddock.slurm.errors import SlurmError

INVENTORY = "inventory.json"
BACKUPS = "backups"

State = Literal["new", "unchanged", "updated", "edited", "foreign", "customised"]


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between a generated file and the one in the folder.

    `edited` is a generated file that somebody changed by hand, `foreign` one that was never generated: both are
    replaced, and kept as a backup. A `customised` one (`# USER_CUSTOMIZED=true`) stays as it is.
    """

    file: File
    state: State
    diff: tuple[str, ...] = ()

    @property
    def replaces(self) -> bool:
        return self.state in ("updated", "edited", "foreign")


def changes(files: tuple[File, ...], folder: Path) -> tuple[Change, ...]:
    """Compare generated files with a folder's. Raises SlurmError for one that cannot be read."""
    return tuple(_change(file, _read(folder / file.path)) for file in files)


def apply(all_changes: tuple[Change, ...], folder: Path) -> tuple[Path, ...]:
    """Write new and changed files, keep what they replace below `backups/`, and return the backups.

    Raises SlurmError, with everything as it was, where one of them cannot be written.
    """
    files = [change.file for change in all_changes if change.state in ("new", "updated", "edited", "foreign")]
    backups = [_backup(folder, change) for change in all_changes if change.replaces]
    try:
        write(Rendered("slurm", (*backups, *files)), folder, force=True)
    except GpuError as error:
        raise SlurmError(str(error)) from None
    return tuple(folder / backup.path for backup in backups)


def inventory_file(inventory: Inventory, folder: Path) -> File:
    """Return inventory.json: the one in the folder while it describes the same machine, for readings change always."""
    path = folder / INVENTORY
    text = _read(path)
    if text is not None:
        try:
            if identity(serialization.loads(text, str(path))) == identity(inventory):
                return File(INVENTORY, text)
        except GpuError:
            pass
    return File(INVENTORY, serialization.dumps(inventory))


def identity(inventory: Inventory) -> str:
    """Return what stays the same while nobody changes the machine's GPUs or driver."""
    gpus = [
        {
            "uuid": gpu.uuid,
            "name": gpu.name,
            "minor": gpu.minor,
            "state": gpu.state,
            "memory": gpu.memory.total if gpu.memory else None,
            "mig": sorted(part.uuid for part in gpu.mig.devices) if gpu.mig else None,
        }
        for gpu in inventory.gpus
    ]
    driver = inventory.driver.version if inventory.driver else None
    return json.dumps({"machine": inventory.machine.name, "driver": driver, "gpus": gpus})


def _change(file: File, text: str | None) -> Change:
    if text is None:
        return Change(file, "new")
    if text == file.text:
        return Change(file, "unchanged")
    if customised(text):
        return Change(file, "customised", _diff(text, file, f"{file.path}, customised"))
    if file.path == INVENTORY:
        return Change(file, "updated")
    state: State = {True: "updated", False: "edited", None: "foreign"}[unedited(text)]  # type: ignore[assignment]  # a table of literals
    return Change(file, state, _diff(text, file, file.path))


def _diff(text: str, file: File, name: str) -> tuple[str, ...]:
    lines = difflib.unified_diff(
        text.splitlines(), file.text.splitlines(), name, f"{file.path}, generated", lineterm=""
    )
    return tuple(lines)


def _backup(folder: Path, change: Change) -> File:
    """Return the replaced content under the first free number."""
    path = folder / change.file.path
    number = 1
    while (folder / BACKUPS / f"{path.name}.{number}").exists():
        number += 1
    return File(f"{BACKUPS}/{path.name}.{number}", _read(path) or "", path.stat().st_mode & 0o777)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()  # with the line ends that it has
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SlurmError(
            f"cannot read {path}: {why}\n    fix: move it away, or name another folder with --output"
        ) from None
