"""Files in folders that a job may write to: what lies there under a known name may be a link, a pipe or endless."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST = 1 << 20
"""Bytes. None of ours has a tenth of it."""


def read(path: Path) -> str:
    """Raises OSError for all but a plain file of up to MOST bytes; what is no UTF-8 is replaced."""
    with open(_open(path, os.O_RDONLY), "rb") as file:
        found = file.read(MOST + 1)
    if len(found) > MOST:
        raise OSError(f"{path} is larger than {MOST >> 20} MiB")
    return found.decode(errors="replace")


def append(path: Path, text: str) -> None:
    """Raises OSError for all but a plain file, or none yet."""
    with open(_open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a", encoding="utf-8") as file:
        file.write(text)


def _open(path: Path, how: int) -> int:
    # A pipe without NONBLOCK is waited for until somebody comes.
    opened = os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(f"{path} is no plain file")
    return opened
