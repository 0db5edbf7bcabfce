"""CPUs and memory of this machine, and no more of them than a container's limits leave."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path

from paddock.gpu.host import cgroup


def usable_cpus(root: Path = Path("/")) -> int:
    """Return the logical CPUs that this process may use: those it may run on, and no more than a container's quota."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.limits(root).cpus
    return here if quota is None else max(1, min(here, math.ceil(quota)))


def quota_threads(root: Path = Path("/")) -> int | None:
    """Return the threads that a container's quota has time for; None without one.

    torch counts the machine's CPUs: threads beyond the quota stop all of them for most of each period.
    """
    quota = cgroup.limits(root).cpus
    return None if quota is None else max(1, int(min(quota, usable_cpus(root))))


def processor(root: Path = Path("/")) -> str:
    """Return the CPU's name."""
    for line in (text(root / "proc/cpuinfo") or "").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory_bytes(root: Path = Path("/")) -> int | None:
    """Return the machine's memory, or a container's limit."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    return min(machine, cgroup.limits(root).memory or machine)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that programs may still take, where the kernel says so, and no more than a container's limit."""
    for line in (text(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            machine, own = int(line.split()[1]) * 1024, cgroup.limits(root)
            return min(machine, machine if own.memory_free is None else own.memory_free)
    return None


def text(path: Path) -> str | None:
    """Return a file of the kernel; None where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
