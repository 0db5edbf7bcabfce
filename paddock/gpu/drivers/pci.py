"""How near two PCI devices are, by the tree that Linux draws in sysfs."""

from __future__ import annotations

from pathlib import Path

from paddock.gpu.model import Closeness

_DEVICES = "sys/bus/pci/devices"


def closeness(first: str | None, second: str | None, root: Path = Path("/")) -> Closeness | None:
    """None where sysfs does not know one of them, as in WSL, or the NUMA nodes of two host bridges."""
    a, b = _bridges(first, root), _bridges(second, root)
    if not a or not b:
        return None
    shared = next((n for n, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))
    if shared == 0:
        nodes = numa_node(first, root), numa_node(second, root)
        return None if None in nodes else "numa-node" if nodes[0] == nodes[1] else "system"
    if shared == 1:
        return "host-bridge"
    return "pcie-switch" if max(len(a), len(b)) - shared <= 1 else "pcie-switches"


def numa_node(address: str | None, root: Path = Path("/")) -> int | None:
    """None on a machine with one node, or where sysfs does not tell."""
    try:
        node = int((root / _DEVICES / str(address) / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def cpus(address: str | None, root: Path = Path("/")) -> tuple[int, ...]:
    """The logical CPUs near the device; none where sysfs does not tell."""
    try:
        ranges = (root / _DEVICES / str(address) / "local_cpulist").read_text().strip().split(",")
        ends = [[int(end) for end in one.split("-")] for one in ranges]
    except (OSError, ValueError):
        return ()
    return tuple(cpu for one in ends for cpu in range(one[0], one[-1] + 1))


def _bridges(address: str | None, root: Path) -> tuple[str, ...]:
    """From the host bridge down to the one above the device."""
    place = root / _DEVICES / str(address)
    if not address or not place.exists():
        return ()
    parts = place.resolve().parts
    start = next((n for n, part in enumerate(parts) if part.startswith("pci") and ":" in part), len(parts))
    return parts[start:-1]
