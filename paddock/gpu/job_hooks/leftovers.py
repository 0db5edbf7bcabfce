"""The job's processes that are still on a GPU when it is over, and their end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.errors import GpuInputError
from paddock.gpu.host.machine import owner as called
from paddock.gpu.host.machine import sees_host_processes
from paddock.gpu.host.processes import Host, Owner, this_host
from paddock.gpu.job_hooks.admission import gibibytes

_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/renderD")
_TRACKING = b"RUNNER_TRACKING_ID="
_NAME = 80
"""Letters of a name that are told: a job may give itself thousands."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """`memory` is its MiB on the GPUs, where the driver's pids mean anything here; `end` says how it went."""

    owner: Owner
    name: str
    memory: int | None
    end: str = "was ended"

    def __str__(self) -> str:
        held = f"{gibibytes(self.memory)} of GPU memory" if self.memory is not None else "its GPU memory is not known"
        return f"{self.name} (pid {self.owner.pid}, {held}) {self.end}"


def find(told: Mapping[int, int | None], tracking: str | None, root: Path = Path("/")) -> tuple[Leftover, ...]:
    """Processes of this user that hold a GPU's device open, or of which the driver tells (`told`: MiB by pid).

    In a container of its own all are the job's but those that this hook descends from. On a host, only those with the
    runner's mark are.
    """
    host, whole = this_host(root / "proc"), sees_host_processes(root)
    above = set(host.ancestry(os.getpid()))
    found = []
    for pid in _own(root):
        if pid in above or not ((whole and pid in told) or _holds_device(pid, root)):
            continue
        if whole and not _tracked(pid, tracking, root):
            continue
        try:
            process = host.owner(pid)
        except GpuInputError:
            continue  # it has ended meanwhile
        found.append(Leftover(process, (called(pid, root)[0] or "process")[:_NAME], told.get(pid) if whole else None))
    return tuple(found)


def end(found: tuple[Leftover, ...], patience: float = 4.0, root: Path = Path("/")) -> tuple[Leftover, ...]:
    """Asks them to end, and kills those that do not in `patience` seconds."""
    host = this_host(root / "proc")
    asked = _signal(host, found, signal.SIGTERM, patience)
    killed = _signal(host, asked, signal.SIGKILL, 1.5)
    words = {one.owner: "had to be killed" for one in asked} | {
        one.owner: "could not be ended: it hangs in the driver" for one in killed
    }
    return tuple(Leftover(one.owner, one.name, one.memory, words.get(one.owner, one.end)) for one in found)


def _signal(host: Host, found: tuple[Leftover, ...], number: signal.Signals, patience: float) -> tuple[Leftover, ...]:
    """Those that live on after it."""
    living = tuple(one for one in found if host.alive(one.owner))
    for one in living:
        try:
            os.kill(one.owner.pid, number)
        except OSError:
            continue
    until = time.monotonic() + patience
    while living and time.monotonic() < until:
        time.sleep(0.02)
        living = tuple(one for one in living if host.alive(one.owner))
    return living


def _own(root: Path) -> Iterator[int]:
    for folder in (root / "proc").iterdir():
        try:
            if folder.name.isdecimal() and folder.stat().st_uid == os.geteuid():
                yield int(folder.name)
        except OSError:
            continue


def _holds_device(pid: int, root: Path) -> bool:
    try:
        files = list((root / "proc" / str(pid) / "fd").iterdir())
    except OSError:
        return False
    for file in files:
        try:
            if os.readlink(file).startswith(_DEVICES):
                return True
        except OSError:
            continue
    return False


def _tracked(pid: int, tracking: str | None, root: Path) -> bool:
    try:
        variables = (root / "proc" / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return tracking is not None and _TRACKING + tracking.encode() in variables
