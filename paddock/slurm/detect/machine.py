"""Machine that a Slurm node is configured for: GPUs that containers can have, CPUs and memory."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

from paddock.gpu.model import Inventory, Pair
from paddock.slurm.detect.engine import Engine
from paddock.slurm.detect.platform import Support, support, system
from paddock.slurm.errors import SlurmInputError

GpuType = Literal["nvidia", "amd", "none"]


@dataclass(frozen=True, slots=True)
class Detection:
    """Machine as its containers see it. `gpu_type` is `none` also where the platform passes no GPU on."""

    inventory: Inventory
    """All of the machine's GPUs."""
    gpu_type: GpuType
    support: Support | None
    cpus: int
    memory_mib: int
    source: str
    """Origin of CPUs and memory, in words."""
    notes: tuple[str, ...] = ()

    @property
    def platform(self) -> str:
        return system(self.inventory.machine)

    @property
    def hardware(self) -> str:
        """Return CPUs and memory as `slurmd -C` prints them."""
        return f"CPUs={self.cpus} RealMemory={self.memory_mib}"

    @property
    def contained(self) -> Inventory:
        """Return the inventory that a container has: the usable GPUs, numbered from 0."""
        usable = sorted(self.inventory.usable, key=lambda gpu: gpu.index) if self.gpu_type != "none" else []
        numbers = {gpu.index: number for number, gpu in enumerate(usable)}
        pairs = tuple(
            Pair(numbers[pair.a], numbers[pair.b], pair.closeness, pair.nvlinks, pair.peer_access)
            for pair in self.inventory.pairs
            if pair.a in numbers and pair.b in numbers
        )
        return replace(
            self.inventory,
            machine=replace(self.inventory.machine, container=True),
            gpus=tuple(replace(gpu, index=numbers[gpu.index]) for gpu in usable),
            pairs=pairs,
        )


def detect(inventory: Inventory, engine: Engine | None, *, saved: bool = False) -> Detection:
    """Return what containers of this machine get. `saved`: the inventory is another machine's, read from a file.

    CPUs and memory are the engine's, since it runs the containers; without an engine this machine's. Raises
    SlurmInputError for a machine that has usable GPUs of two vendors.
    """
    vendors = {gpu.vendor for gpu in inventory.usable}
    if len(vendors) > 1:
        raise SlurmInputError(
            f"the inventory has GPUs of {' and '.join(sorted(vendors))}\n    expected: GPUs of one vendor in a node"
            "\n    fix: leave the others out of the inventory (gpu.list --json), and give it with --from"
        )
    row, notes = support(replace(inventory, gpus=inventory.usable or inventory.gpus)), []
    gpu_type: GpuType = "none"
    if row is not None and not row.possible:
        notes.append(row.needs)
    elif inventory.usable:
        gpu_type = "amd" if "amd" in vendors else "nvidia"
    notes += [
        f"GPU {gpu.index} is left out: it is {gpu.state}{f' ({gpu.reason})' if gpu.reason else ''}."
        for gpu in inventory.gpus
        if gpu.state != "ok"
    ]
    if saved:
        notes.append("CPUs and memory are this machine's: an inventory holds none.")
    cpus, memory_mib, source = usable_cpus(), _memory_mib(), "this machine"
    if engine and engine.cpus and engine.memory_mib:
        cpus, memory_mib, source = engine.cpus, engine.memory_mib, f"the Docker engine {engine.version}".rstrip()
        if not saved and not engine.desktop and engine.name not in ("", inventory.machine.name):
            notes.append(
                f"The Docker engine runs on {engine.name}, and GPUs were looked for on {inventory.machine.name}: save"
                f" the inventory there (gpu.list --json FILE), and give it with --from."
            )
    return Detection(inventory, gpu_type, row, cpus, memory_mib, source, tuple(notes))


def usable_cpus() -> int:
    """Return the CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
