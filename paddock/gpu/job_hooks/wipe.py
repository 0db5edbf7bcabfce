"""Removal of the files that a job left on disk and in shared memory."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.host.machine import machine, sees_host_processes
from paddock.gpu.job_hooks.environment import PodJob

_KEPT_BY_RUNNER = frozenset({"_runner_file_commands", "_github_workflow", "_github_home"})
"""Entries of the runner's temporary folder that it still reads, such as the job's summary."""


@dataclass
class Wiped:
    """Counts of removed and remaining entries, and the first reason."""

    files: int = 0
    size: int = 0
    remaining: int = 0
    why: str = ""

    def failed(self, error: OSError) -> None:
        self.remaining += 1
        self.why = self.why or f"{error.filename}: {error.strerror}"


class _TimeExpired(Exception):
    pass


def shared_memory(job: PodJob, seconds: float, root: Path = Path("/")) -> Wiped | None:
    """Remove this user's files from the container's /dev/shm. Return None where others may use it, as with MPS."""
    if job.sharing == "mps" or sees_host_processes(root) or not machine(root).container:
        return None
    return wipe(root / "dev/shm", seconds)


def temporary(folder: Path | None, own: Path, seconds: float) -> Wiped | None:
    """Empty the runner's `_temp`. The runner does so later, but cannot remove read-only folders such as Go's module
    cache. Return None for any other folder."""
    if folder is None or folder.name != "_temp" or folder.is_symlink():
        return None
    return wipe(folder, seconds, keep=_KEPT_BY_RUNNER | {own.name})


def wipe(folder: Path, seconds: float, keep: frozenset[str] = frozenset()) -> Wiped:
    """Remove this user's entries of a folder; follow no link and skip other file systems."""
    result = Wiped()
    try:
        _Wipe(folder.lstat().st_dev, time.monotonic() + seconds, result).empty(folder, keep)
    except FileNotFoundError:
        pass
    except OSError as error:
        result.failed(error)
    except RecursionError:
        result.remaining += 1
        result.why = result.why or "folders are nested too deeply"
    except _TimeExpired:
        result.remaining += 1
        result.why = result.why or f"there was more than {seconds:.0f} s can remove"
    return result


@dataclass(frozen=True, slots=True)
class _Wipe:
    device: int
    until: float
    result: Wiped

    def empty(self, folder: str | Path, keep: frozenset[str] = frozenset()) -> None:
        """Raises OSError where the folder cannot be read, and _TimeIsUp."""
        children = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._check_time()
                children.append(entry)
        for entry in children:
            self._check_time()
            if entry.name not in keep:
                try:
                    self._remove(entry)
                except OSError as error:
                    self.result.failed(error)

    def _remove(self, entry: os.DirEntry[str]) -> None:
        status = entry.stat(follow_symlinks=False)
        if status.st_uid != os.geteuid() or status.st_dev != self.device:
            return
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(entry.path)
            self.result.files += 1
            self.result.size += status.st_blocks * 512
            return
        if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(entry.path, stat.S_IRWXU)
        self.empty(entry.path)
        os.rmdir(entry.path)

    def _check_time(self) -> None:
        if time.monotonic() > self.until:
            raise _TimeExpired
