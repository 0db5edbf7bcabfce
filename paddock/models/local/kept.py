"""Files that are made once and kept in this user's cache: whole or not at all, and by one process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from paddock import files
from paddock.models.errors import error

Progress = Callable[[str, int, int], None]
"""Told what is done, how many bytes of it, and of how many."""


def silent(what: str, done: int, total: int) -> None:
    """Take progress, and tell nobody."""


def cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of models that are kept."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddock" / "models"


def check_room(folder: Path, needed: int, what: str) -> None:
    """Raise ModelError where the disk of a folder, which may not be there yet, has fewer bytes free than needed."""
    there = next((place for place in (folder, *folder.parents) if place.is_dir()), Path("/"))
    if (free := shutil.disk_usage(there).free) < needed:
        raise error(
            f"{what} takes {needed / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} free",
            "room for the whole file",
            "make room there, or take a smaller model or format",
        )


def kept(
    name: str,
    needed: int,
    what: str,
    write: Callable[[BinaryIO], None],
    progress: Progress = silent,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Return the cache's file of that name, which `write` makes of `needed` bytes where it is not there.

    Another process that makes it is waited for. Whatever ends the writing, nothing of the file stays, but for a kill:
    what that leaves is removed by the next. Raises ModelError for a full disk, or a folder that cannot be written.
    """
    path = cache(environ) / name
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / f".{name}.lock").open("a") as held:
            try:
                files.lock(held.fileno())
            except BlockingIOError:
                progress(f"another process is at it: {what}", 0, needed)
                files.lock(held.fileno(), wait=True)
            if path.exists():
                return path
            for left in path.parent.glob(f".{name}.*.part"):
                left.unlink(missing_ok=True)
            check_room(path.parent, needed, what)
            with files.replacing(path, sync=False) as file:
                write(file)
    except OSError as failed:
        raise error(
            f"cannot write {path}: {failed.strerror or failed}",
            fix="make room there, or name another folder by XDG_CACHE_HOME",
        ) from None
    return path
