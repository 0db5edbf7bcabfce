"""The build context: the files of an image's folder and what is gathered for them, and the hash that names both."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from paddock.images.errors import BuildError, BuildInputError

_LEFT_OUT = ("__pycache__", ".*", "*.pyc", "*~")
_UNSEEN = re.compile(r"^[^/]+\.dist-info/(METADATA|RECORD)$")
_EPOCH = 315532800
"""1980, the first date that a zip can hold: layers carry the dates of files, so all machines give them one."""


def stage(parts: Mapping[str, Path], into: Path) -> None:
    """Copies files and folders to their paths below `into` ("." is `into` itself), the later ones over the earlier.

    Modes become 0644 or 0755 and dates the same everywhere, so that neither a umask nor a checkout shows in a layer.
    Raises BuildInputError for what is missing and for what is not a plain file, and BuildError where there is no room.
    """
    try:
        _copy(parts, into)
    except OSError as error:
        # Of a folder Python gathers what went wrong, file by file.
        why = error.args[0][0][2].partition(" -> ")[0] if isinstance(error, shutil.Error) else error
        raise BuildError(
            f"cannot gather what the image is made of in {into}: {why}\n    expected: some 30 MB in a writable folder"
            "\n    fix: TMPDIR names another folder"
        ) from None
    _plain(into)


def _copy(parts: Mapping[str, Path], into: Path) -> None:
    for path, source in parts.items():
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(
                source, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_LEFT_OUT)
            )
        elif source.exists():
            shutil.copyfile(source, target)
            shutil.copymode(source, target)
        else:
            raise BuildInputError(
                f"{source} is missing\n    expected: a file or folder that the image is made of"
                "\n    fix: git checkout restores what belongs to the project"
            )


def _plain(into: Path) -> None:
    for path in sorted(into.rglob("*"), reverse=True):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BuildInputError(
                f"{path.relative_to(into)} of the build context is a link or a device\n    expected: plain files and"
                " folders\n    fix: put the file itself there"
            )
        path.chmod(0o755 if path.is_dir() or _is_executable(path) else 0o644)
        os.utime(path, (_EPOCH, _EPOCH))


def content(context: Path, facts: Mapping[str, str]) -> str:
    """The sha256 of a staged context and of `facts` (arguments, base, platform): equal trees give equal hashes.

    Of a wheel the members count: the bytes of a zip depend on the compressor that the machine has. Not its METADATA,
    where words for package indexes and the needs of other installations change, nor RECORD, the sums of the members.
    """
    whole = hashlib.sha256()
    for name, executable, data in _files(context):
        whole.update(f"{name}\0{executable:d}\0{hashlib.sha256(data).hexdigest()}\n".encode())
    for key, value in sorted(facts.items()):
        whole.update(f"{key}={value}\n".encode())
    return whole.hexdigest()


def _files(context: Path) -> Iterator[tuple[str, bool, bytes]]:
    for path in sorted(file for file in context.rglob("*") if file.is_file()):
        name = path.relative_to(context).as_posix()
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                members = [entry for entry in wheel.infolist() if not _UNSEEN.search(entry.filename)]
                for member in sorted(members, key=lambda entry: entry.filename):
                    executable = bool(member.external_attr >> 16 & 0o100)
                    yield f"{name}/{member.filename}", executable, wheel.read(member)
        else:
            yield name, _is_executable(path), path.read_bytes()


def _is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o100)
