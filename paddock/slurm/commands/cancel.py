"""`slurm.cancel`: end jobs."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.console.command import command
from paddock.console.parameters import Parameters, parameter
from paddock.console.report import Report
from paddock.errors import program
from paddock.slurm.commands.jobs import job_id, prefix
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.programs import jobs
from paddock.slurm.programs.place import find


@dataclass(frozen=True, kw_only=True)
class Cancel(Parameters):
    """Parameters of `slurm.cancel`."""

    job: tuple[str, ...] = parameter(..., "number of a job, or of an array's task such as 12_3")
    prefix: str = prefix()


@dataclass(frozen=True, kw_only=True)
class Cancelled(Report):
    """Jobs that were cancelled, and those that had ended before, with how."""

    SCHEMA = 1
    cancelled: list[str]
    ended_before: dict[str, str]

    def text(self) -> Iterator[str]:
        yield from (f"job {id} cancelled" for id in self.cancelled)
        yield from (f"job {id} had ended before: {how}" for id, how in self.ended_before.items())

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, "cancelled": self.cancelled, "ended_before": list(self.ended_before)}


@command()
def cancel(parameters: Cancel) -> Cancelled:
    """Cancel jobs. Raises SlurmError and SlurmInputError."""
    ids = [job_id(word) for word in parameters.job]
    if not ids:
        raise SlurmInputError(f"no job is named\n    expected: {program()} slurm.cancel 12,13")
    place = find(parameters.prefix)
    states = {id: jobs.find(place, [id]) for id in ids}
    cancelled = [id for id in ids if not all(job.final for job in states[id])]
    for id in cancelled:
        tasks = [job.id for job in states[id] if not job.final]
        for task in [id] if id in (states[id][0].array, states[id][0].id) else tasks:
            jobs.cancel(place, task, _user())
    ended = {id: states[id][0].words for id in ids if id not in cancelled}
    return Cancelled(cancelled=cancelled, ended_before=ended)


def _user() -> str:
    """Return the user's name, or number where the machine has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
