"""Write rendered files: all of them or none, and never over a user's changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.errors import GpuError
from paddock.gpu.render.fields import wrong
from paddock.gpu.render.rendered import File, Rendered, customised, unedited

RECORD = ".paddock-rendered.json"
"""Records the last written content of each file, for formats without comments."""


@dataclass(frozen=True, slots=True)
class _Old:
    content: bytes
    mode: int


def write(rendered: Rendered, folder: Path, force: bool = False) -> tuple[Path, ...]:
    """Write new and changed files, and return their paths.

    `force` overwrites foreign and edited files too, but never one with the line `# USER_CUSTOMIZED=true`. Raises
    GpuInputError before any change, and GpuError, with all files restored, where writing fails.
    """
    record = _record(folder / RECORD)
    old = {file.path: _old(folder / file.path, force) for file in rendered.files}
    for file in rendered.files:
        if (existing := old[file.path]) is not None:
            _refuse(file, existing.content, folder, record.get(file.path), force)
    new = [file for file in rendered.files if old[file.path] != _Old(file.text.encode(), file.mode)]
    new_record = record | {file.path: _sum(file.text.encode()) for file in rendered.files}
    if new_record != record:
        text = json.dumps({"schema": 1, "files": dict(sorted(new_record.items()))}, indent=2) + "\n"
        old[RECORD] = _old(folder / RECORD, force=True)
        # Last: a file is recorded only once it is in place.
        new.append(File(RECORD, text))
    _replace(new, old, folder)
    return tuple(folder / file.path for file in new if file.path != RECORD)


def _refuse(file: File, content: bytes, folder: Path, recorded: str | None, force: bool) -> None:
    path, text = folder / file.path, content.decode(errors="replace")
    if text == file.text:
        return
    if customised(text):
        raise wrong(
            f"{path} is customised: it says USER_CUSTOMIZED=true",
            "nothing writes over it",
            "take that line out, or write into another folder",
        )
    if force or recorded == _sum(content):
        return
    match unedited(text):
        case None if recorded is None:
            raise wrong(f"{path} is there, and not written by Paddock", "a new file", "another folder, or --force")
        case None | False:
            raise wrong(
                f"{path} was changed by hand", "the file as it was written", "move your changes away, or --force"
            )
        case True:
            return


def _replace(files: list[File], old: Mapping[str, _Old | None], folder: Path) -> None:
    """Replace all files, or restore the old ones. All are written next to their places first."""
    parts: list[Path] = []
    replaced: list[File] = []
    new_folders: list[Path] = []
    try:
        for file in files:
            path = folder / file.path
            missing = [parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            new_folders += missing
            parts.append(_part(path))
            _create(parts[-1], file.text.encode(), file.mode)
        for file, part in zip(files, parts, strict=True):
            part.replace(folder / file.path)
            replaced.append(file)
    except OSError as error:
        for file in replaced:
            _restore(folder / file.path, old.get(file.path))
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        for new_folder in sorted(new_folders, key=lambda path: -len(path.parts)):
            with contextlib.suppress(OSError):
                new_folder.rmdir()
        raise GpuError(
            f"cannot write into {folder}: {error.strerror or error}\n    fix: a folder that is yours, with room in it"
        ) from None


def _create(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def _restore(path: Path, old: _Old | None) -> None:
    with contextlib.suppress(OSError):
        if old is None:
            path.unlink(missing_ok=True)
        else:
            _create(_part(path), old.content, old.mode)
            _part(path).replace(path)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _old(path: Path, force: bool) -> _Old | None:
    try:
        if path.is_symlink() and not force:
            raise wrong(
                f"{path} is a link", "a file, or nothing", "another folder, or --force, which replaces the link"
            )
        if path.is_dir():
            raise wrong(f"{path} is a folder", "a file, or nothing", "another folder")
        return _Old(path.read_bytes(), path.stat().st_mode & 0o777)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise GpuError(f"cannot read {path}: {error.strerror}\n    fix: another folder") from None


def _record(path: Path) -> dict[str, str]:
    """Return the recorded checksums; none where the record cannot be read."""
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name): str(sum_) for name, sum_ in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
