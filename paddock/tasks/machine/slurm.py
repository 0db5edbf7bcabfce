"""Slurm on this machine."""

from __future__ import annotations

from typing import Any

from invoke.context import Context

from paddock.slurm.cli.parameters import Configure
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
