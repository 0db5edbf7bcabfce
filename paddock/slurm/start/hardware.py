"""Processors and memory that a container may use."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from paddock.slurm.errors import SlurmError

_UNLIMITED_MIB = 2**40
"""Version 1 of cgroups writes a number near 2^63 bytes for no limit."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Processors and memory of a node."""

    line: str
    """As `slurmd -C` prints it."""
    cpus: int
    memory_mib: int
    limits: tuple[str, ...] = ()
    """Limits of the container, in words."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of this process's cgroup; None for none."""

    memory_mib: int | None = None
    cpus: int | None = None


def limits(root: Path = Path("/")) -> Limits:
    """Read the cgroup of this container, of either version."""
    group = root / "sys/fs/cgroup"
    memory = _number(group / "memory.max") or _number(group / "memory/memory.limit_in_bytes")
    quota, period = _quota(group)
    memory_mib = memory >> 20 if memory else None
    return Limits(
        memory_mib if memory_mib and memory_mib < _UNLIMITED_MIB else None,
        max(1, quota // period) if quota and period else None,
    )


def hardware(line: str, limits: Limits, usable_cpus: int | None = None) -> Hardware:
    """Return what `slurmd -C` prints, lowered to the container's limits. Raises SlurmError."""
    facts = dict(re.findall(r"(\w+)=(\S+)", line))
    if not facts.get("CPUs", "").isdecimal() or not facts.get("RealMemory", "").isdecimal():
        raise SlurmError(f"`slurmd -C` printed no node: {line.strip()[:200] or 'nothing'}")
    cpus, memory, words = int(facts["CPUs"]), int(facts["RealMemory"]), []
    allowed = min(value for value in (cpus, limits.cpus, usable_cpus) if value)
    if limits.memory_mib and limits.memory_mib < memory:
        words.append(f"memory {limits.memory_mib} MiB of {memory} (limit of the container)")
        memory = limits.memory_mib
    if allowed < cpus:
        # Slurm accepts a number of processors without sockets and cores, and any below the machine's.
        words.append(f"{allowed} of {cpus} CPUs (limit of the container)")
        return Hardware(f"CPUs={allowed} RealMemory={memory}", allowed, memory, tuple(words))
    facts["RealMemory"] = str(memory)
    facts.pop("NodeName", None)
    kept = " ".join(f"{name}={value}" for name, value in facts.items() if name != "UpTime")
    return Hardware(kept, cpus, memory, tuple(words))


def usable_cpus() -> int:
    """Return the processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quota(group: Path) -> tuple[int, int]:
    fields = _text(group / "cpu.max").split()
    if len(fields) == 2 and all(field.isdecimal() for field in fields):
        return int(fields[0]), int(fields[1])
    return _number(group / "cpu/cpu.cfs_quota_us") or 0, _number(group / "cpu/cpu.cfs_period_us") or 0


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
