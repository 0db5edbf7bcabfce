"""What a job leaves behind on disk and in shared memory."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.host.machine import machine, sees_host_processes
from paddock.gpu.job_hooks.environment import Job

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


def shared_memory(job: Job, seconds: float, root: Path = Path("/")) -> Wiped | None:
    """Empties this container's /dev/shm of this user's files. None where it may be others' as well: with MPS it is."""
    if job.sharing == "mps" or sees_host_processes(root) or not machine(root).container:
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
    done = Wiped()
    try:
        _Wiping(folder.lstat().st_dev, time.monotonic() + seconds, done).inside(folder, keep)
    except FileNotFoundError:
        pass
    except OSError as error:
        done.kept(error)
    except RecursionError:
        done.left += 1
        done.why = done.why or "folders lie too deep in each other"
    except _TimeIsUp:
        done.left += 1
        done.why = done.why or f"there was more than {seconds:.0f} s can remove"
    return done


@dataclass(frozen=True, slots=True)
class _Wiping:
    device: int
    until: float
    done: Wiped

    def inside(self, folder: str | Path, keep: frozenset[str] = frozenset()) -> None:
        """Raises OSError where the folder cannot be read, and _TimeIsUp."""
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._in_time()
                found.append(entry)
        for entry in found:
            self._in_time()
            if entry.name not in keep:
                try:
                    self._remove(entry)
                except OSError as error:
                    self.done.kept(error)

    def _remove(self, entry: os.DirEntry[str]) -> None:
        about = entry.stat(follow_symlinks=False)
        if about.st_uid != os.geteuid() or about.st_dev != self.device:
            return
        if not stat.S_ISDIR(about.st_mode):
            os.unlink(entry.path)
            self.done.files += 1
            self.done.size += about.st_blocks * 512
            return
        if about.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(entry.path, stat.S_IRWXU)
        self.inside(entry.path)
        os.rmdir(entry.path)

    def _in_time(self) -> None:
        if time.monotonic() > self.until:
            raise _TimeIsUp
