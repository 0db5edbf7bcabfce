"""What a call does beyond itself, as the interpreter audits it: files written, programs started, hosts reached."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "shutil.rmtree",
    "subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty", "os.kill",
    "socket.connect", "socket.getaddrinfo", "socket.bind",
}  # fmt: skip
_armed: list[list[str]] = []
_hooked = False


@contextmanager
def effects() -> Iterator[list[str]]:
    """Yield the list to which each effect of the block is added as it happens."""
    global _hooked
    if not _hooked:  # a hook stays for as long as the interpreter lives
        sys.addaudithook(_see)
        _hooked = True
    seen: list[str] = []
    _armed.append(seen)
    try:
        yield seen
    finally:
        _armed.remove(seen)


def _see(event: str, arguments: tuple[Any, ...]) -> None:
    if not _armed:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, int):
            return  # what opened it was seen
        if not isinstance(flags, int) or not flags & _WRITING or path == os.devnull or "__pycache__" in str(path):
            return
    elif event not in _CHANGES or "__pycache__" in str(arguments[:1]):
        return
    for seen in _armed:
        seen.append(f"{event} {arguments[:1]}")
