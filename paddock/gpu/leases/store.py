"""The folder with one file for each lease, and one for each ticket of the queue.

A file is written next to its place and renamed, so a reader sees a whole lease or none; every change holds the lock.
Files are opened relative to the checked folder, which `paddock.files` does not do. No link is followed that another
user may have placed, on the way to the folder or in it, and nothing but a regular file is read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddock.errors import one_line, program
from paddock.gpu.errors import GpuError, GpuInputError, NoGpu
from paddock.gpu.leases import queue
from paddock.gpu.leases.lease import Lease, data, parse
from paddock.gpu.leases.queue import Ticket

_LOCK, _ENDING, _TICKET, _PART = ".lock", ".json", ".ticket", ".part"
_PLACE = "paddock/gpu"
_PART_NAME = re.compile(r"\.[0-9a-f]{8}\.part")
_LARGEST = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ON_THE_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""O_PATH, since a folder on the way may be one that this user cannot list."""
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Without O_NONBLOCK, opening a pipe would wait for somebody to write into it."""
_LOCK_SECONDS = 30.0


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the machine's folder where this user may write it, else the user's own. Raises GpuInputError.

    All users who can write to /run/paddock/gpu share it; `install -d -m 1777 /run/paddock/gpu` opens it to everyone.
    Leases in a user's own folder are not visible to other users: for them only its processes mark a GPU as busy.
    """
    if named := environ.get("PADDOCK_GPU_LEASES"):
        if not Path(named).is_absolute():  # each working directory would have leases of its own
            raise GpuInputError(
                f"PADDOCK_GPU_LEASES is {named!r}\n    expected: a folder from the root, the same for all who share the"
                f" GPUs\n    fix: PADDOCK_GPU_LEASES={Path(named).absolute()}"
            )
        return Path(named)
    machine = Path("/run") / _PLACE
    if os.access(machine if machine.is_dir() else "/run", os.W_OK):
        return machine
    if session := environ.get("XDG_RUNTIME_DIR"):
        return Path(session) / _PLACE
    return Path(tempfile.gettempdir()) / f"paddock-gpu-{os.geteuid()}"


class LeasesLocked(NoGpu):
    """Raised where others hold the lock for too long."""


class Folder:
    """Folder of leases. Raises GpuError where it cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def leases(self) -> tuple[Lease, ...]:
        """Return all leases, whether their owners live or not; none where the folder does not exist."""
        with self._translated_errors("read"):
            try:
                fd = self._open()
            except FileNotFoundError:
                return ()
            with contextlib.closing(_Descriptor(fd)):
                return self._read(fd)

    def tickets(self) -> tuple[Ticket, ...]:
        """Return all tickets of the queue in order, whether their processes still wait or not."""
        with self._translated_errors("read"):
            try:
                fd = self._open()
            except FileNotFoundError:
                return ()
            with contextlib.closing(_Descriptor(fd)):
                return self._read_tickets(fd)

    def names(self) -> frozenset[str]:
        """Return the names of the files: they differ after each lease, release and ticket."""
        with self._translated_errors("read"), contextlib.suppress(FileNotFoundError):
            return frozenset(name for name in os.listdir(self.path) if not name.startswith("."))
        return frozenset()

    @contextlib.contextmanager
    def locked(self, seconds: float | None = None) -> Iterator[Changes]:
        """Hold the lock inside the block; the folder is created if needed.

        Raises LeasesLocked where others hold it for `seconds`, by default for longer than any change takes.
        """
        with self._translated_errors("write"):
            # Private, except for the machine's folder, which everyone may read.
            fd = self._open(create=0o755 if self.path.is_relative_to("/run/paddock") else 0o700)
        with contextlib.closing(_Descriptor(fd)):
            with self._translated_errors("write"):
                lock = self._lock(fd, _LOCK_SECONDS if seconds is None else seconds)
            with contextlib.closing(_Descriptor(lock)):
                yield Changes(self, fd)

    def _open(self, create: int | None = None) -> int:
        fd = _open_folder(self.path, create)
        about = os.fstat(fd)
        world_writable = about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX
        if about.st_uid in {0, os.geteuid()} and not world_writable:
            return fd
        os.close(fd)
        problem = (
            "any user may remove its files" if world_writable else f"it belongs to another user (uid {about.st_uid})"
        )
        raise GpuError(
            f"GPU leases in {self.path} cannot be trusted: {problem}\n    expected: a folder of yours or of root,"
            " writable by its group at most, or with the sticky bit\n    fix: chmod 1777 it, or name another in"
            " PADDOCK_GPU_LEASES"
        )

    def _lock(self, folder: int, seconds: float) -> int:
        until = time.monotonic() + seconds
        pause = 0.0005
        while True:
            fd = self._lock_file(folder)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(fd), os.stat(_LOCK, dir_fd=folder, follow_symlinks=False)):
                    return fd
            except FileNotFoundError:
                pass  # removed by another process, which may create a new one: only the current file's lock counts
            except BlockingIOError:
                if time.monotonic() > until:
                    os.close(fd)
                    raise LeasesLocked(
                        f"the GPU leases in {self.path} have been locked for {seconds:g} s\n    expected: a lock"
                        f" of milliseconds\n    fix: `fuser {self.path / _LOCK}` says who holds it: the GPU driver may"
                        " hang there"
                    ) from None
                time.sleep(pause)
                pause = min(2 * pause, 0.02)
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    @staticmethod
    def _lock_file(folder: int) -> int:
        """Open the lock file, also another user's, which cannot be opened with O_CREAT in a folder like /tmp."""
        while True:
            with contextlib.suppress(FileNotFoundError):
                return _open_file(_LOCK, folder)
            with contextlib.suppress(FileExistsError):
                fd = os.open(_LOCK, _FILE | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
                os.fchmod(fd, 0o644)
                return fd

    def _read(self, folder: int) -> tuple[Lease, ...]:
        leases = []
        for name in sorted(os.listdir(folder)):
            if name.endswith(_ENDING) and not name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # released just now
                    leases.append(self._read_lease(folder, name))
        return tuple(leases)

    def _read_tickets(self, folder: int) -> tuple[Ticket, ...]:
        tickets = []
        for name in os.listdir(folder):
            if name.endswith(_TICKET) and not name.startswith("."):
                # A file that is not a ticket keeps nobody waiting; one that is not a lease could hide a leased GPU.
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError, GpuInputError):
                    fd = _open_file(name, folder)
                    with contextlib.closing(_Descriptor(fd)):
                        tickets.append(queue.parse(os.read(fd, _LARGEST), name.removesuffix(_TICKET)))
        return tuple(sorted(tickets, key=lambda ticket: ticket.place))

    def _read_lease(self, folder: int, name: str) -> Lease:
        fd = _open_file(name, folder)
        with contextlib.closing(_Descriptor(fd)):
            text = os.read(fd, _LARGEST)
        try:
            lease = parse(json.loads(text), name.removesuffix(_ENDING))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise GpuError(
                f"{one_line(str(self.path / name))} is not a lease that can be read, so the free GPUs are not known\n"
                "    expected: only leases in that folder\n"
                f"    fix: remove the file, once `{program()} gpu.list --processes` shows no work of its owner"
            ) from None
        return lease

    @contextlib.contextmanager
    def _translated_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            match error.errno:
                case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                    fix = "make room there"
                case errno.ELOOP | errno.ENOTDIR:
                    fix = "put a folder in the place of a link that another user may have made"
                case errno.EROFS | errno.EACCES | errno.EPERM:
                    fix = "let this user write there"
                case _:
                    fix = "see why"
            raise GpuError(
                f"cannot {verb} the GPU leases in {self.path}: {error.strerror}\n    expected: a folder of files that"
                f" this user may {verb}\n    fix: {fix}, or name another folder in PADDOCK_GPU_LEASES"
            ) from None


class Changes:
    """Changes to the leases while the lock is held."""

    def __init__(self, folder: Folder, fd: int) -> None:
        self._folder = folder
        self._fd = fd

    def leases(self) -> tuple[Lease, ...]:
        with self._folder._translated_errors("read"):
            return self._folder._read(self._fd)

    def tickets(self) -> tuple[Ticket, ...]:
        with self._folder._translated_errors("read"):
            return self._folder._read_tickets(self._fd)

    def write(self, lease: Lease | Ticket) -> None:
        """Write the whole file, or none and raise GpuError."""
        text = memoryview(json.dumps(_document(lease)).encode())
        part = f".{lease.id}{_PART}"
        with self._folder._translated_errors("write"):
            try:
                fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=self._fd)
                with contextlib.closing(_Descriptor(fd)):
                    os.fchmod(fd, 0o644)
                    while text:
                        text = text[os.write(fd, text) :]
                    os.fsync(fd)  # a power failure must not leave an empty file
                os.rename(part, _name(lease), src_dir_fd=self._fd, dst_dir_fd=self._fd)
            except OSError:
                self._unlink(part)
                raise

    def remove(self, lease: Lease | Ticket) -> bool:
        """Return True where it no longer exists: another user's file stays in a folder with the sticky bit."""
        return self._unlink(_name(lease))

    def tidy(self) -> None:
        """Remove the partial files of killed writers, and nothing else that somebody keeps there."""
        for name in os.listdir(self._fd):
            if _PART_NAME.fullmatch(name):
                self._unlink(name)

    def _unlink(self, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=self._fd)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def _name(entry: Lease | Ticket) -> str:
    return f"{entry.id}{_TICKET if isinstance(entry, Ticket) else _ENDING}"


def _document(entry: Lease | Ticket) -> dict[str, Any]:
    return queue.data(entry) if isinstance(entry, Ticket) else data(entry)


def _open_folder(path: Path, create: int | None) -> int:
    """Open the folder step by step; with `create`, missing ones are made with that mode. Raises OSError.

    A link is followed only from a folder where none but this user and root may have placed it, such as /var/run.
    """
    *above, last = path.absolute().parts
    fd = os.open(above.pop(0), _ON_THE_WAY)
    for name in (*above, last):
        with contextlib.closing(_Descriptor(fd)):
            flags = _FOLDER if name is last else _ON_THE_WAY
            if _others_write(os.fstat(fd)):
                flags |= os.O_NOFOLLOW
            try:
                fd = os.open(name, flags, dir_fd=fd)
            except FileNotFoundError:
                if create is None:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, create, dir_fd=fd)
                fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=fd)
    return fd


def _others_write(about: os.stat_result) -> bool:
    return about.st_uid not in {0, os.geteuid()} or bool(about.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _open_file(name: str, folder: int) -> int:
    """Open a regular file to read. Raises OSError."""
    fd = os.open(name, _FILE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, f"{one_line(name)} is not a regular file")
    return fd


class _Descriptor:
    """Open file for contextlib.closing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        os.close(self._fd)
