"""Reading and appending in folders that a job may write to, where a file may be a link, a pipe or endless.

`paddock.files` replaces files in folders of this user's own, and needs none of these checks.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

MAX_BYTES = 1 << 20
"""Ten times the size of any file that a hook writes."""


def read(path: Path) -> str:
    """Return the text, with invalid UTF-8 replaced. Raises OSError unless it is a regular file up to MAX_BYTES."""
    with open(_open(path, os.O_RDONLY), "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    return content.decode(errors="replace")


def append(path: Path, text: str) -> None:
    """Append text, creating the file if needed. Raises OSError if it is not a regular file."""
    with open(_open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a", encoding="utf-8") as file:
        file.write(text)


def _open(path: Path, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe waits for its other end.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor
