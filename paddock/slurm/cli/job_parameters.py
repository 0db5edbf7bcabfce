"""Flags of the tasks about jobs and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.duration import Seconds
from paddock.gpu.parameter import JSON, Parameters, parameter

_PREFIX = "use the container PREFIX-slurm; by default a Slurm of this machine that answers, else paddock-slurm"


@dataclass(frozen=True, kw_only=True)
class Submit(Parameters):
    """Flags of `slurm.submit`."""

    method: Path = parameter(..., "method.json of the job; a command after -- takes the place of its own")
    count: int = parameter(1, "submit the job so many times")
    wait: bool = parameter(False, "wait for the end; the exit code is 1 where a job fails. Ctrl-C leaves it running")
    dry_run: bool = parameter(
        False, "check the method against the nodes, show what sbatch would get, and submit nothing"
    )
    prefix: str = parameter("", _PREFIX)
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Status(Parameters):
    """Flags of `slurm.status`."""

    job: tuple[str, ...] = parameter((), "these jobs alone, by number")
    last: int = parameter(10, "ended jobs to show")
    prefix: str = parameter("", _PREFIX)
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Cancel(Parameters):
    """Flags of `slurm.cancel`."""

    job: tuple[str, ...] = parameter(..., "number of a job, or of an array's task such as 12_3")
    prefix: str = parameter("", _PREFIX)
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Nodes(Parameters):
    """Flags of `slurm.nodes`."""

    prefix: str = parameter("", _PREFIX)
    json: str | None = parameter(None, JSON.help, flag=JSON)


@dataclass(frozen=True, kw_only=True)
class Test(Parameters):
    """Flags of `slurm.test`."""

    node: tuple[str, ...] = parameter((), "these nodes alone")
    seconds: float = parameter(60.0, "longest time that a job may wait for its start", flag="wait", unit=Seconds)
    prefix: str = parameter("", _PREFIX)
    json: str | None = parameter(None, JSON.help, flag=JSON)
