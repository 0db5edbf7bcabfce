"""Slurm's files for one machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from paddock.gpu.model import Inventory
from paddock.gpu.render import render
from paddock.gpu.render.rendered import File, Rendered, headed
from paddock.slurm.write import task_prolog

CONTAINED = {
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "TaskProlog": task_prolog.PATH,
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherFrequency": "task=5",
    "JobAcctGatherParams": "OverMemoryKill",
}
"""Process tracking without cgroups, which a container may not write. A job is ended when it exceeds its memory."""
_COMMON = {
    # Always both: a job in the queue that asks for a type that slurm.conf lacks would lose that request.
    "GresTypes": "gpu,shard",
    # By default a batch job may wait three seconds for others to be scheduled with, and thirty after the controller's
    # restart, when only the backfill scheduler looks at the queue.
    "SchedulerParameters": "batch_sched_delay=0,bf_interval=2",
    # Results that stay after the controller has forgotten a job, without a database.
    "JobCompType": "jobcomp/filetxt",
    "JobCompLoc": "/var/spool/slurmctld/completed-jobs.log",
    "SlurmctldPidFile": "/run/slurm/slurmctld.pid",
    "SlurmdPidFile": "/run/slurm/slurmd.pid",
    "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
    "SlurmdLogFile": "/var/log/slurm/slurmd.log",
}
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
    contained = inventory.machine.container
    settings = _COMMON | (CONTAINED if contained else {}) | cluster.settings
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
