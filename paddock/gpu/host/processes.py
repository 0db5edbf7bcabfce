"""Processes as owners of leases: identity, liveness, and a clock that no user can set."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock.errors import program
from paddock.gpu.errors import GpuError, GpuInputError
from paddock.process import pids, read_stat

FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's fixed number for the host's own namespace."""
_WRAPPERS = frozenset({"sudo", "doas", "su", "timeout", "time", "uv"})
"""Programs that end together with their command."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Process, distinguishable from a later one with the same pid.

    `start` is in the kernel's ticks since boot, None where it cannot be read; `namespace` is that of its pid.
    """

    pid: int
    start: int | None
    namespace: str

    def __str__(self) -> str:
        """Return the pid, with its namespace where that is a container's."""
        return f"pid {self.pid}" if self.namespace == FIRST_NAMESPACE else f"pid {self.pid} in {self.namespace}"


@dataclass(frozen=True, slots=True)
class Host:
    """This boot of the machine, as this process sees it.

    `clock` is in seconds since boot, sleep included, and independent of the time of day.
    """

    boot_id: str
    namespace: str
    clock: Callable[[], float]
    proc: Path = Path("/proc")

    def owner(self, pid: int) -> Owner:
        """Return the process of that pid as an owner. Raises GpuInputError where there is none."""
        candidate = Owner(pid, None, self.namespace)
        if pid < 1 or not self.alive(candidate):
            raise GpuInputError(
                f"no process has the pid {pid}\n    expected: one that runs as long as the GPUs are needed"
                "\n    fix: name another owner, or none and a time to live"
            )
        stat = read_stat(pid, self.proc)
        return Owner(pid, stat.start if stat else None, self.namespace)

    def alive(self, owner: Owner) -> bool | None:
        """Return None for an owner in a pid namespace that cannot be looked into from here.

        A process that /proc hides counts as the owner as long as its pid is in use.
        """
        if owner.namespace != self.namespace:
            return self._alive_elsewhere(owner)
        try:
            os.kill(owner.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # another user's
        stat = read_stat(owner.pid, self.proc)
        if stat is None:
            return True
        if owner.start is not None and stat.start != owner.start:
            return False
        return not stat.ended

    def _alive_elsewhere(self, owner: Owner) -> bool | None:
        """Look for a process that has the owner's pid in one of its namespaces, and its start time.

        Only the host sees all namespaces, and only where its /proc hides no user's processes.
        """
        if not self.sees_driver_pids:
            return None
        complete = read_stat(1, self.proc) is not None
        for pid in pids(self.proc):
            try:
                status = (self.proc / str(pid) / "status").read_text(errors="replace")
                inside = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[2:]
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended just now
            except (OSError, StopIteration):
                complete = False
                continue
            stat = read_stat(pid, self.proc) if str(owner.pid) in inside else None
            if stat and not stat.ended and owner.start in {None, stat.start}:
                return True
        return False if complete else None

    def caller(self) -> Owner:
        """Return the process that called this program: a shell, a script.

        A shell forks itself for pipelines and `$(...)`; such a copy ends with them, as sudo does with its command, so
        its parent is returned. Raises GpuInputError where that is the host's init, which never ends.
        """
        pid = os.getppid()
        while (stat := read_stat(pid, self.proc)) and (above := read_stat(stat.parent, self.proc)):
            if stat.name not in _WRAPPERS and (not stat.image or stat.image != above.image):
                break
            pid = stat.parent
        if pid <= 1 and self.namespace == FIRST_NAMESPACE:
            raise GpuInputError(
                "the calling process is init, which never ends\n    expected: an owner of the"
                " lease, or a time after which it ends\n    fix: --owner PID, or --ttl SECONDS"
            )
        return self.owner(max(pid, 1))

    @property
    def sees_driver_pids(self) -> bool:
        """True where pids are those of the host, which drivers report; in a container they mean other processes."""
        return self.namespace == FIRST_NAMESPACE

    def descent(self, pids: Iterable[int], owners: Collection[int]) -> dict[int, frozenset[int]]:
        """Return which of `owners` each of `pids` is or descends from; empty where driver pids are not visible."""
        return {pid: frozenset(self.ancestry(pid)).intersection(owners) for pid in pids if self.sees_driver_pids}

    def ancestry(self, pid: int) -> Iterator[int]:
        """Yield the process and its ancestors."""
        while pid:
            yield pid
            stat = read_stat(pid, self.proc)
            pid = stat.parent if stat else 0


def this_host(proc: Path = Path("/proc")) -> Host:
    """Return this machine. Raises GpuError on a system without /proc."""
    try:
        boot_id = (proc / "sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink(proc / "self/ns/pid")
        return Host(boot_id, namespace, lambda: time.clock_gettime(time.CLOCK_BOOTTIME), proc)
    except (OSError, AttributeError):
        raise GpuError(
            f"GPUs cannot be leased here: {proc} does not show which processes run"
            "\n    expected: Linux with /proc"
            f"\n    fix: choose a GPU with `{program()} gpu.list` and name it to the program"
        ) from None
