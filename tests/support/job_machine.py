"""A machine as the hooks after a job look at it, and waiting for what a real process does."""

from __future__ import annotations

import os
from pathlib import Path

HOSTS, OWN = "pid:[4026531836]", "pid:[4026532999]"
"""Namespaces of pids: the host's, and that of a container."""


def machine(folder: Path, namespace: str, *pids: int, device: str | None = None) -> Path:
    """A root whose /proc holds this process and those below, and no other that a test could end; those hold `device`
    open."""
    proc = folder / "proc"
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to(namespace)
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text("boot\n")
    for pid in {*pids, os.getpid(), os.getppid()}:
        (proc / str(pid) / "fd").mkdir(parents=True)
        for name in ("stat", "status", "environ", "cmdline", "comm"):
            (proc / str(pid) / name).symlink_to(f"/proc/{pid}/{name}")
        if device and pid in pids:
            (proc / str(pid) / "fd/3").symlink_to(device)
    return folder
