"""The connections between the GPUs: a matrix and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.console.report import Report
from paddock.console.table import table
from paddock.gpu import serialization
from paddock.gpu.model import Gpu, Inventory, Pair
from paddock.gpu.views.details import ranges
from paddock.gpu.views.gpus import UNKNOWN, amount, left_out, listing, named, notes

_NEAR = {
    "same-board": "PIX",
    "pcie-switch": "PIX",
    "pcie-switches": "PXB",
    "host-bridge": "PHB",
    "numa-node": "NODE",
    "system": "SYS",
}
"""As nvidia-smi writes them."""
_LEGEND = "NVn: n NVLinks  PIX: one PCIe switch  PXB: several  PHB: one CPU  NODE: one NUMA node  SYS: between CPUs"

Ways = Mapping[tuple[int, int], Pair]
"""Each pair of GPUs both ways round, by index."""


@dataclass(frozen=True, kw_only=True)
class TopologyView(Report):
    """Topology: how the GPUs reach each other, and which CPUs are near each."""

    SCHEMA = 1
    inventory: Inventory

    def text(self) -> Iterator[str]:
        gpus, pairs = self.inventory.usable, self.inventory.pairs
        if not gpus:
            yield from listing(self.inventory)
            return
        ways = {(pair.a, pair.b): pair for pair in pairs} | {(pair.b, pair.a): pair for pair in pairs}
        rows = []
        for gpu in gpus:
            cells = ("X" if gpu is other else connection(ways.get((gpu.index, other.index))) for other in gpus)
            rows.append((f"GPU{gpu.index}", *cells, amount(gpu.numa_node), ranges(gpu.cpus) or UNKNOWN))
        yield from table(("", *(f"GPU{gpu.index}" for gpu in gpus), "NUMA", "near CPUs"), rows)
        yield ""
        yield _LEGEND
        yield ""
        yield from picture(gpus, ways)
        yield from left_out(self.inventory)
        yield from notes(self.inventory)

    def document(self) -> dict[str, Any]:
        inventory = self.inventory
        return {
            "schema": self.SCHEMA,
            "reason": inventory.reason,
            "gpus": [{**named(gpu), "numa_node": gpu.numa_node, "cpus": list(gpu.cpus)} for gpu in inventory.gpus],
            "pairs": serialization.data(inventory.pairs),
        }


def connection(pair: Pair | None) -> str:
    """`NV18`, `PHB`; `?` where nobody knows."""
    if pair is None:
        return "?"
    return f"NV{pair.nvlinks}" if pair.nvlinks else _NEAR.get(pair.closeness or "", "?")


def picture(gpus: Sequence[Gpu], ways: Ways) -> Iterator[str]:
    """NUMA nodes, what shares a PCIe switch in them, and islands of NVLink."""
    numbers = [gpu.index for gpu in gpus]
    at = {gpu.index: gpu.numa_node for gpu in gpus}
    for node in sorted(set(at.values()), key=lambda number: -1 if number is None else number):
        here = [number for number in numbers if at[number] == node]
        yield f"NUMA node {node}" if node is not None else "NUMA node unknown"
        switches = _groups(here, ways, lambda pair: pair.closeness in ("same-board", "pcie-switch"))
        for switch in switches:
            joined = " ── ".join(f"[GPU{number}]" for number in switch)
            yield f"  {'└' if switch is switches[-1] else '├'}─ {'switch ' if len(switch) > 1 else ''}{joined}"
    islands = [group for group in _groups(numbers, ways, lambda pair: pair.nvlinks > 0) if len(group) > 1]
    for island in islands:
        yield f"NVLink island: GPU {', '.join(map(str, island))}"
    if not islands and len(numbers) > 1:
        yield "no NVLink between these GPUs"


def _groups(numbers: Iterable[int], ways: Ways, joined: Callable[[Pair], bool]) -> list[list[int]]:
    """Return the groups of GPUs that are connected, directly or through others."""
    groups: list[list[int]] = []
    for number in numbers:
        pairs = {other: ways.get((number, other)) for group in groups for other in group}
        near = {other for other, pair in pairs.items() if pair is not None and joined(pair)}
        own = [group for group in groups if near & set(group)]
        merged = sorted([number, *(other for group in own for other in group)])
        groups = [*(group for group in groups if group not in own), merged]
    return sorted(groups)
