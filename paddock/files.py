"""Files that are replaced whole or not at all, and locks among processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path, mode: int | None = None, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Yield a new file, which takes the place of `path` when the block ends without an error.

    `mode` holds from the first byte; without it the umask decides. `sync` waits for the disk, so that a power failure
    leaves the old file or the new one. Raises OSError, and then the old file is as it was.
    """
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
    try:
        with open(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            yield file
            file.flush()
            if sync:
                os.fsync(descriptor)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def write(path: Path, content: str | bytes, mode: int | None = None, *, sync: bool = True) -> None:
    """Replace `path` by a file with `content`; see `replacing`."""
    with replacing(path, mode, sync=sync) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path` inside the block; the system releases it when the process ends. See `lock`."""
    with path.open("a") as file:
        lock(file.fileno(), wait=wait)
        yield


def lock(descriptor: int, *, wait: bool = False) -> None:
    """Lock an open file until it is closed. Raises BlockingIOError where another process has the lock and not `wait`.

    A file system without locks gives none: two processes at once are then the user's to avoid.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass
