"""Processes as owners of leases: which one it is, whether it lives, and a clock that nobody can set."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.errors import GpuError, GpuInputError

FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the host's own namespace this number."""
_ENDED = "ZX"
_WRAPPERS = frozenset({"sudo", "doas", "su", "timeout", "time", "uv"})
"""Programs that end with the one they were given to run."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told apart from a later one of the same pid.

    `start` is in the kernel's ticks since boot, None where it may not be read; `namespace` is that of its pid.
    """

    pid: int
    start: int | None
    namespace: str


@dataclass(frozen=True, slots=True)
class _Stat:
    name: str
    state: str
    parent: int
    threads: int
    start: int
    image: tuple[str, ...]
    """Where its program, arguments and stack lie: those of its parent until it calls exec, which places them anew.
    Empty where that may not be read."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine since it was started, as this process sees it.

    `clock` is in seconds since boot, sleep included: setting the time of day does not touch it.
    """

    boot_id: str
    namespace: str
    clock: Callable[[], float]
    proc: Path = Path("/proc")

    def owner(self, pid: int) -> Owner:
        """Raises GpuInputError for a pid that no process has."""
        found = Owner(pid, None, self.namespace)
        if pid < 1 or not self.alive(found):
            raise GpuInputError(
                f"no process has the pid {pid}\n    expected: one that runs, for as long as the GPUs are wanted"
                "\n    fix: name another owner, or none and a time to live"
            )
        stat = self._stat(pid)
        return Owner(pid, stat.start if stat else None, self.namespace)

    def alive(self, owner: Owner) -> bool | None:
        """None for an owner in another pid namespace, of which nothing can be known here.

        A process that /proc hides is taken for the owner as long as its pid is in use.
        """
        if owner.namespace != self.namespace:
            return None
        try:
            os.kill(owner.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # another user's
        stat = self._stat(owner.pid)
        if stat is None:
            return True
        if owner.start is not None and stat.start != owner.start:
            return False
        # A main thread may end before the others, and looks like a zombie then.
        return stat.state not in _ENDED or stat.threads > 1

    def caller(self) -> Owner:
        """The process that called this program: a shell, a script.

        A shell forks itself for pipelines and `$(...)`; such a copy ends with them, as sudo does with its command, so
        the one above is taken. Raises GpuInputError where it is the host's init, which never ends.
        """
        pid = os.getppid()
        while (stat := self._stat(pid)) and (above := self._stat(stat.parent)):
            if stat.name not in _WRAPPERS and (not stat.image or stat.image != above.image):
                break
            pid = stat.parent
        if pid <= 1 and self.namespace == FIRST_NAMESPACE:
            raise GpuInputError(
                "nothing that ends by itself has called this: the owner would be init\n    expected: an owner of the"
                " lease, or a time after which it ends\n    fix: --owner PID, or --ttl SECONDS"
            )
        return self.owner(max(pid, 1))

    @property
    def knows_drivers_pids(self) -> bool:
        """Drivers tell the pids of the host, which in a container are other processes."""
        return self.namespace == FIRST_NAMESPACE

    def descent(self, pids: Iterable[int], owners: Collection[int]) -> dict[int, frozenset[int]]:
        """Which of `owners` each of `pids` is or descends from; nothing where those pids are not known."""
        return {pid: frozenset(self.line(pid)).intersection(owners) for pid in pids if self.knows_drivers_pids}

    def line(self, pid: int) -> Iterator[int]:
        """The process and those above it."""
        while pid:
            yield pid
            stat = self._stat(pid)
            pid = stat.parent if stat else 0

    def _stat(self, pid: int) -> _Stat | None:
        try:
            text = (self.proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        before, _, after = text.rpartition(")")
        fields = after.split()
        image = (*fields[23:26], *fields[42:49]) if fields[25] != "0" else ()
        return _Stat(before.partition("(")[2], fields[0], int(fields[1]), int(fields[17]), int(fields[19]), image)


def this_host(proc: Path = Path("/proc")) -> Host:
    """Raises GpuError on a system that does not tell who lives."""
    try:
        boot_id = (proc / "sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink(proc / "self/ns/pid")
        return Host(boot_id, namespace, lambda: time.clock_gettime(time.CLOCK_BOOTTIME), proc)
    except (OSError, AttributeError):
        raise GpuError(
            f"GPUs cannot be leased here: {proc} does not tell which processes live"
            "\n    expected: Linux with /proc\n    fix: choose a GPU with `paddock gpu.list` and name it to the program"
        ) from None
