"""Slurm's files for one machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from paddock.gpu.model import Inventory
from paddock.gpu.render import render
from paddock.gpu.render.rendered import File, Rendered, headed

_CGROUPS_DISABLED = (23, 11)
"""The first version whose slurmd can be told to do without cgroups; the ones before do so by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Facts of the machine and of the Slurm that will read the files, as `slurm.installed` returns them.

    `hardware` is the line of `slurmd -C`, or `CPUs=… RealMemory=…` in MiB.
    """

    name: str
    hardware: str
    version: str = ""
    plugins: str = ""
    address: str = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Settings of the cluster. `shards` is the number of jobs that may share a GPU, 0 for none."""

    name: str = "paddock"
    shards: int = 0
    settings: dict[str, str] = field(default_factory=dict)


def slurm_files(inventory: Inventory, node: Node, cluster: Cluster = Cluster()) -> Rendered:
    """Return slurm.conf, gres.conf and cgroup.conf for these GPUs, any number of them. Raises GpuError."""
    import yaml

    tables = yaml.safe_load(Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8"))
    contained = inventory.machine.container
    settings = tables["common"] | (tables["contained"] if contained else {}) | cluster.settings
    rendered = render(
        "slurm", inventory, node=node.name, address=node.address, whole=True, shards=cluster.shards if inventory.gpus
        else 0, version=node.version, plugins=node.plugins, hardware=node.hardware, cluster=cluster.name,
        settings="\n".join(f"{name}={value}" for name, value in settings.items()),
    )  # fmt: skip
    files = rendered.files if not contained else (*rendered.files, _cgroup(node.version))
    return Rendered("slurm", files, rendered.notes, rendered.warnings)


def _cgroup(version: str) -> File:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    disabled = numbers >= _CGROUPS_DISABLED
    return headed("cgroup.conf", "CgroupPlugin=disabled\n" if disabled else "ConstrainDevices=no\n")
