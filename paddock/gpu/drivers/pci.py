"""Distance between PCI devices, by the device tree in sysfs."""

from __future__ import annotations

from pathlib import Path

from paddock.gpu.model import Closeness

_DEVICES = "sys/bus/pci/devices"


def closeness(first: str | None, second: str | None, root: Path = Path("/")) -> Closeness | None:
    """Return None where sysfs lacks one of the devices, as in WSL, or the NUMA nodes of two host bridges."""
    a, b = _bridges(first, root), _bridges(second, root)
    if not a or not b:
        return None
    shared = next(
        (n for n, (bridge, other) in enumerate(zip(a, b, strict=False)) if bridge != other), min(len(a), len(b))
    )
    if shared == 0:
        nodes = numa_node(first, root), numa_node(second, root)
        return None if None in nodes else "numa-node" if nodes[0] == nodes[1] else "system"
    if shared == 1:
        return "host-bridge"
    return "pcie-switch" if max(len(a), len(b)) - shared <= 1 else "pcie-switches"


def numa_node(address: str | None, root: Path = Path("/")) -> int | None:
    """Return None on a machine with one node, or where sysfs does not know it."""
    try:
        node = int((root / _DEVICES / str(address) / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def cpus(address: str | None, root: Path = Path("/")) -> tuple[int, ...]:
    """Return the logical CPUs near the device; none where sysfs does not know them."""
    try:
        ranges = (root / _DEVICES / str(address) / "local_cpulist").read_text().strip().split(",")
        ends = [[int(end) for end in cpu_range.split("-")] for cpu_range in ranges]
    except (OSError, ValueError):
        return ()
    return tuple(cpu for bounds in ends for cpu in range(bounds[0], bounds[-1] + 1))


def _bridges(address: str | None, root: Path) -> tuple[str, ...]:
    """Return the bridges from the host bridge down to the one above the device."""
    place = root / _DEVICES / str(address)
    if not address or not place.exists():
        return ()
    parts = place.resolve().parts
    start = next((n for n, part in enumerate(parts) if part.startswith("pci") and ":" in part), len(parts))
    return parts[start:-1]
