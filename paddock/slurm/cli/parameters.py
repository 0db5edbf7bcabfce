"""Flags of `configure` and of the configuration for AWS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.parameter import JSON, Flag, Parameters, parameter

LEFT_OUT = "they are left out by --gpu-type none"
"""Reason in an inventory without the machine's GPUs."""


@dataclass(frozen=True, kw_only=True)
class Configure(Parameters):
    """Flags of `configure`."""

    dry_run: bool = parameter(False, "show what would be written, and change nothing")
    rebuild: bool = parameter(False, "build the image again, without its cache")
    inventory: Path | None = parameter(
        None, "", flag=Flag("from", None, None, "a saved inventory (gpu.list --json) instead of this machine's GPUs",
                            metavar="PATH")
    )  # fmt: skip
    prefix: str = parameter("paddock", "name of the Compose project; the container is PREFIX-slurm")
    output: Path | None = parameter(None, "folder of the files, by default PREFIX-slurm")
    shards: int = parameter(0, "jobs that may share a GPU (--gres=shard:1), 0 for none", ge=0)
    gpu_type: str = parameter("", "none: configure without GPUs, although the machine has some")
    image: str = parameter("", "use this image of Slurm, and build none")
    base: str = parameter("", "build the image on this one of the Debian family, instead of the default for the GPUs")
    files_only: bool = parameter(False, "write the files, and neither ask Docker nor build")
    diagnose: bool = parameter(False, "walk from the driver to a job's GPU, and name the first broken link")
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Cloud(Parameters):
    """Flags of `slurm.cloud`."""

    instances: tuple[str, ...] = parameter(..., "instance types of the nodes, such as g5.xlarge,g6e.2xlarge,m7i.large")
    subnets: tuple[str, ...] = parameter(..., "subnets of the nodes; one keeps the nodes of a job near each other")
    region: str = parameter("us-east-1", "region of AWS")
    name: str = parameter("paddock", "name of the cluster")
    max: int = parameter(4, "most nodes of each instance type")
    on_demand: bool = parameter(False, "on-demand nodes instead of spot ones")
    head: str = parameter("m7i.large", "instance type of the head node, which runs all the time")
    head_subnet: str = parameter("", "subnet of the head node, by default the first of --subnets")
    key: str = parameter("", "EC2 key pair for SSH to the head node; without one Systems Manager opens a shell")
    output: Path | None = parameter(None, "folder of cluster.yaml, by default the current one")
    dry_run: bool = parameter(False, "print the file, and write nothing")
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Start(Parameters):
    """Flags of `slurm.start`."""

    role: str = parameter("all", "all: the whole cluster in one container; controller or node: a part of it")
    name: str = parameter("", "name of the node, by default the container's host name")
    cluster: str = parameter("paddock", "name of the cluster; the queue belongs to it")
    controller: str = parameter("", "host name of the controller, with --role node")
    controller_port: int = parameter(6817, "port of slurmctld")
    daemon_port: int = parameter(6818, "port of slurmd, the same on every node")
    shards: int = parameter(0, "jobs that may share a GPU (--gres=shard:1), 0 for none")
    nodes: int = parameter(64, "most nodes that may join a controller")
    munge_key: Path | None = parameter(None, "file with the cluster's munge key, such as a secret; by default the"
                                             " volume at /etc/munge has it")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Health(Parameters):
    """Flags of `slurm.health`."""

    json: str | None = parameter(None, JSON.help, flag=JSON)
