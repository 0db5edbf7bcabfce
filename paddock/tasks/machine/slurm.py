"""Slurm on this machine."""

from __future__ import annotations

from typing import Any

from invoke.context import Context

from paddock.slurm.cli.job_parameters import Cancel, Nodes, Status, Submit, Test
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


def _submit(c: Context, flags: dict[str, Any]) -> int:
    from paddock.slurm.cli import submit as command

    return command.submit(flags, c.config.get("command_line", []))


slurm_submit = task_of_flags(
    "submit",
    "Submit a method to Slurm: its command with the processors, memory and GPUs that method.json asks for.",
    {name: flag for name, _, flag in Submit.flags()},
    _submit,
)


def _status(c: Context, flags: dict[str, Any]) -> int:
    from paddock.slurm.cli import jobs as command

    return command.status(flags)


slurm_status = task_of_flags(
    "status",
    "Show Slurm's queue with what each job waits for, and how jobs ended.",
    {name: flag for name, _, flag in Status.flags()},
    _status,
)


def _nodes(c: Context, flags: dict[str, Any]) -> int:
    from paddock.slurm.cli import nodes as command

    return command.nodes(flags)


slurm_nodes = task_of_flags(
    "nodes",
    "Show Slurm's nodes: state, and processors, memory and GPUs in use.",
    {name: flag for name, _, flag in Nodes.flags()},
    _nodes,
)


def _cancel(c: Context, flags: dict[str, Any]) -> int:
    from paddock.slurm.cli import jobs as command

    return command.cancel(flags)


slurm_cancel = task_of_flags(
    "cancel",
    "Cancel jobs of Slurm.",
    {name: flag for name, _, flag in Cancel.flags()},
    _cancel,
)


def _test(c: Context, flags: dict[str, Any]) -> int:
    from paddock.slurm.cli import gpu_test as command

    return command.test(flags)


slurm_test = task_of_flags(
    "test",
    "Run a job on every GPU of Slurm at the same time, and one without; each checks what it sees.",
    {name: flag for name, _, flag in Test.flags()},
    _test,
)

SLURM_TASKS = (
    slurm_submit,
    slurm_status,
    slurm_nodes,
    slurm_cancel,
    slurm_test,
    slurm_start,
    slurm_health,
    slurm_cloud,
)
