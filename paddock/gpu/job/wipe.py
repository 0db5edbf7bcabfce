"""What a job leaves behind on disk and in shared memory."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.machine import machine, sees_host_processes

_RUNNERS = frozenset({"_runner_file_commands", "_github_workflow", "_github_home"})
"""What the runner still reads in its folder of temporary files: the job's summary, for one."""


@dataclass
class Wiped:
    """What went, and what did not and why."""

    files: int = 0
    size: int = 0
    left: int = 0
    why: str = ""

    def kept(self, error: OSError) -> None:
        self.left += 1
        self.why = self.why or f"{error.filename}: {error.strerror}"


class _TimeIsUp(Exception):
    pass


def shared_memory(seconds: float, root: Path = Path("/")) -> Wiped | None:
    """Empties this container's /dev/shm of this user's files. None where it may be others' as well."""
    if sees_host_processes(root) or not machine(root).container:
        return None
    return wipe(root / "dev/shm", seconds)


def temporary(folder: Path | None, own: Path, seconds: float) -> Wiped | None:
    """Empties the runner's `_temp` as the runner itself does a moment later, and of what it cannot: folders that may
    not be written to, as Go's module cache is. None for any other folder."""
    if folder is None or folder.name != "_temp" or folder.is_symlink():
        return None
    return wipe(folder, seconds, keep=_RUNNERS | {own.name})


def wipe(folder: Path, seconds: float, keep: frozenset[str] = frozenset()) -> Wiped:
    """Removes this user's entries of a folder; follows no link, and leaves other file systems alone."""
    done, until = Wiped(), time.monotonic() + seconds
    try:
        device = folder.lstat().st_dev
        for entry in _entries(folder):
            if entry.name not in keep:
                _remove(entry, device, until, done)
    except FileNotFoundError:
        pass
    except OSError as error:
        done.kept(error)
    except _TimeIsUp:
        done.left += 1
        done.why = done.why or f"there was more than {seconds:.0f} s can remove"
    return done


def _remove(entry: os.DirEntry[str], device: int, until: float, done: Wiped) -> None:
    if time.monotonic() > until:
        raise _TimeIsUp
    try:
        about = entry.stat(follow_symlinks=False)
        if about.st_uid != os.geteuid() or about.st_dev != device:
            return
        if not stat.S_ISDIR(about.st_mode):
            os.unlink(entry.path)
            done.files += 1
            done.size += about.st_blocks * 512
            return
        if about.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(entry.path, stat.S_IRWXU)
        for inner in _entries(entry.path):
            _remove(inner, device, until, done)
        os.rmdir(entry.path)
    except OSError as error:
        done.kept(error)


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)
