"""Limits of this process's control group: what a pod or container may use of its machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 2**60
"""Version 1 of cgroups writes a number near 2^63 bytes for no limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in bytes and CPUs; None for none. A quota may be of parts of a CPU."""

    memory: int | None = None
    memory_free: int | None = None
    """Bytes that are left of the limit; files that the kernel can drop count as free."""
    cpus: float | None = None


def limits(root: Path = Path("/")) -> Limits:
    """Return the limits of this container, of either version of cgroups, and not those of a group inside it."""
    group = root / "sys/fs/cgroup"
    memory = _number(group / "memory.max")
    used, stat = _number(group / "memory.current"), group / "memory.stat"
    if memory is None:
        memory = _number(group / "memory/memory.limit_in_bytes")
        used, stat = _number(group / "memory/memory.usage_in_bytes"), group / "memory/memory.stat"
    if memory is None or memory >= _UNLIMITED:
        return Limits(cpus=_cpus(group))
    free = None if used is None else max(0, memory - max(0, used - _inactive_files(stat)))
    return Limits(memory, free, _cpus(group))


def _cpus(group: Path) -> float | None:
    fields = _text(group / "cpu.max").split()
    if len(fields) != 2:
        fields = [_text(group / f"cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    quota, period = fields
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _inactive_files(stat: Path) -> int:
    for line in _text(stat).splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdecimal():
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
