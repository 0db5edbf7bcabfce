"""Processes of a job that still use a GPU after it: how to find and end them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from paddock.gpu.errors import GpuInputError
from paddock.gpu.host.machine import owner as called
from paddock.gpu.host.machine import sees_host_processes
from paddock.gpu.host.processes import Owner, this_host
from paddock.gpu.job_hooks.admission import gibibytes
from paddock.process import end as end_pids
from paddock.process import pids

_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/renderD")
_TRACKING = b"RUNNER_TRACKING_ID="
_NAME_LENGTH = 80
"""Characters of a name that are shown: a job may choose thousands."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A leftover process: `memory` is its MiB on the GPUs, if the driver's pids are valid here; `end` is the result."""

    owner: Owner
    name: str
    memory: int | None
    end: str = "was ended"

    def __str__(self) -> str:
        held = f"{gibibytes(self.memory)} of GPU memory" if self.memory is not None else "its GPU memory is not known"
        return f"{self.name} (pid {self.owner.pid}, {held}) {self.end}"


def find(driver_memory: Mapping[int, int | None], tracking: str | None, root: Path = Path("/")) -> tuple[Leftover, ...]:
    """Return this user's processes that hold a GPU device open or that the driver lists (`driver_memory`: MiB by pid).

    In a container all are the job's except this hook and its ancestors. On a host, only those with the runner's mark
    are.
    """
    host, sees_host = this_host(root / "proc"), sees_host_processes(root)
    ancestors = set(host.ancestry(os.getpid()))
    leftovers = []
    for pid in _own_pids(root / "proc"):
        if pid in ancestors or not ((sees_host and pid in driver_memory) or _holds_device(pid, root)):
            continue
        if sees_host and not _tracked(pid, tracking, root):
            continue
        try:
            process = host.owner(pid)
        except GpuInputError:
            continue  # it has ended since
        name = (called(pid, root)[0] or "process")[:_NAME_LENGTH]
        leftovers.append(Leftover(process, name, driver_memory.get(pid) if sees_host else None))
    return tuple(leftovers)


def end(leftovers: tuple[Leftover, ...], patience: float = 4.0, root: Path = Path("/")) -> tuple[Leftover, ...]:
    """End the processes, and kill those that still run after `patience` seconds."""
    host = this_host(root / "proc")

    def alive() -> list[int]:
        return [leftover.owner.pid for leftover in leftovers if host.alive(leftover.owner)]

    resisting = end_pids(alive, ((signal.SIGTERM, patience),))
    hanging = end_pids(alive, ((signal.SIGKILL, 1.5),))
    results = dict.fromkeys(resisting, "had to be killed") | dict.fromkeys(
        hanging, "could not be ended: it hangs in the driver, or the machine is busy"
    )
    return tuple(replace(leftover, end=results.get(leftover.owner.pid, leftover.end)) for leftover in leftovers)


def _own_pids(proc: Path) -> Iterator[int]:
    for pid in pids(proc):
        with contextlib.suppress(OSError):
            if (proc / str(pid)).stat().st_uid == os.geteuid():
                yield pid


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
