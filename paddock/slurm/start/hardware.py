"""CPUs and memory that a container may use."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paddock.gpu.host.cgroup import Limits
from paddock.slurm.errors import SlurmError


@dataclass(frozen=True, slots=True)
class Hardware:
    """CPUs and memory of a node."""

    line: str
    """As `slurmd -C` prints it."""
    cpus: int
    memory_mib: int
    limits: tuple[str, ...] = ()
    """Limits of the container, in words."""


def hardware(line: str, limits: Limits, usable_cpus: int | None = None) -> Hardware:
    """Return what `slurmd -C` prints, lowered to the container's limits. Raises SlurmError."""
    facts = dict(re.findall(r"(\w+)=(\S+)", line))
    if not facts.get("CPUs", "").isdecimal() or not facts.get("RealMemory", "").isdecimal():
        raise SlurmError(f"`slurmd -C` printed no node: {line.strip()[:200] or 'nothing'}")
    cpus, memory, words = int(facts["CPUs"]), int(facts["RealMemory"]), []
    quota, most_mib = limits.cpus and max(1, int(limits.cpus)), (limits.memory or 0) >> 20
    allowed = min(value for value in (cpus, quota, usable_cpus) if value)
    if 0 < most_mib < memory:
        words.append(f"memory {most_mib} MiB of {memory} (limit of the container)")
        memory = most_mib
    if allowed < cpus:
        # Slurm accepts a number of CPUs without sockets and cores, and any below the machine's.
        words.append(f"{allowed} of {cpus} CPUs (limit of the container)")
        return Hardware(f"CPUs={allowed} RealMemory={memory}", allowed, memory, tuple(words))
    facts["RealMemory"] = str(memory)
    facts.pop("NodeName", None)
    kept = " ".join(f"{name}={value}" for name, value in facts.items() if name != "UpTime")
    return Hardware(kept, cpus, memory, tuple(words))
