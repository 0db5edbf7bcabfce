"""Processors and memory that a container may use."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.host import cgroup
from paddock.slurm.errors import SlurmError


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
    own = cgroup.limits(root)
    return Limits(own.memory >> 20 if own.memory else None, max(1, int(own.cpus)) if own.cpus else None)


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
