"""Slurm on this machine."""

from __future__ import annotations

from typing import Any

from invoke.context import Context

from paddock.slurm.cli.parameters import Cloud, Configure, Health, Start
from paddock.tasks.common import ROOT, task_of_flags


def _configure(c: Context, flags: dict[str, Any]) -> int:
    from paddock.slurm.cli import configure as command

    return command.configure(ROOT, flags)


configure = task_of_flags(
    "configure",
    "Configure a Slurm node in a container: detect the GPUs, prove that Docker passes them, write the files, build.",
    {name: flag for name, _, flag in Configure.flags()},
    _configure,
)


def _cloud(c: Context, flags: dict[str, Any]) -> int:
    from paddock.slurm.cli import cloud as command

    return command.cloud(flags)


slurm_cloud = task_of_flags(
    "cloud",
    "Write the configuration of AWS ParallelCluster, for those who outgrow one machine; with what its nodes cost.",
    {name: flag for name, _, flag in Cloud.flags()},
    _cloud,
)


def _start(c: Context, flags: dict[str, Any]) -> int:
    from paddock.slurm.cli import node as command

    return command.start(flags)


slurm_start = task_of_flags(
    "start",
    "Run a Slurm node in its container: detect the GPUs, write Slurm's files for them, start and watch the daemons.",
    {name: flag for name, _, flag in Start.flags()},
    _start,
)


def _health(c: Context, flags: dict[str, Any]) -> int:
    from paddock.slurm.cli import node as command

    return command.health(flags)


slurm_health = task_of_flags(
    "health",
    "Check the Slurm node of this container: munge, the controller and the node's state. Exit 1 where one is not well.",
    {name: flag for name, _, flag in Health.flags()},
    _health,
)
