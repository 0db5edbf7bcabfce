"""`slurm.submit`: submit a method, and wait for it where that is asked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.console.command import command
from paddock.console.output import JsonOutput, say
from paddock.console.parameters import Parameters, parameter
from paddock.errors import INTERRUPTED, printable, program
from paddock.slurm.commands.jobs import document, log_path, prefix
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.programs.jobs import SlurmJob
from paddock.slurm.programs.nodes import read_nodes
from paddock.slurm.programs.place import Place, find
from paddock.slurm.submit import submission
from paddock.slurm.submit.method import load
from paddock.slurm.submit.resources import options
from paddock.slurm.submit.submission import Submitted
from paddock.slurm.submit.waiting import wait

_MOST = 1000


@dataclass(frozen=True, kw_only=True)
class Submit(Parameters):
    """Parameters of `slurm.submit`."""

    method: Path = parameter(..., "method.json of the job; a command after -- takes the place of its own")
    count: int = parameter(1, "submit the job so many times")
    wait: bool = parameter(False, "wait for the end; the exit code is 1 where a job fails. Ctrl-C leaves it running")
    dry_run: bool = parameter(
        False, "check the method against the nodes, show what sbatch would get, and submit nothing"
    )
    command: tuple[str, ...] = parameter((), "a command in place of the method's own", trailing=True)
    prefix: str = prefix()


@command()
def submit(parameters: Submit) -> int:
    """Submit a method and return the exit code: 1 where a job of --wait fails. Raises SlurmError."""
    json = parameters.json
    if not 1 <= parameters.count <= _MOST:
        raise SlurmInputError(
            f"--count is {parameters.count}\n    expected: 1 to {_MOST}\n    fix: an array in method.json holds more"
        )
    path = parameters.method
    method, script = load(path, parameters.command)  # a mistake in the file is reported before Slurm is asked
    place = find(parameters.prefix)
    chosen = options(method.resources, read_nodes(place), str(path))
    sys.stderr.writelines(f"{printable(note)}\n" for note in chosen.notes)
    if parameters.dry_run:
        json.write({"schema": 1, "options": list(chosen.words), "script": script, "jobs": []})
        say(json, f"sbatch {' '.join(chosen.words)}", script.rstrip("\n"), "nothing was submitted")
        return 0
    submitted: list[Submitted] = []
    try:
        for _ in range(parameters.count):
            submitted.append(submission.submit(place, method, script, chosen))
            last = submitted[-1]
            say(json, f"job {last.id} ({last.name}), log {log_path(place, last.log)}")
    except BaseException:
        if submitted:
            _goes_on(submitted, "not all jobs were submitted: ")
        raise
    if not parameters.wait:
        json.write({"schema": 1, "jobs": [_submitted(place, job) for job in submitted]})
        return 0
    return _wait(place, submitted, json)


def _wait(place: Place, submitted: Sequence[Submitted], json: JsonOutput) -> int:
    try:
        ended = wait(place, [job.id for job in submitted], _progress, _silent)
    except KeyboardInterrupt:
        _goes_on(submitted)
        return INTERRUPTED
    json.write({"schema": 1, "jobs": [document(place, job) for job in ended]})
    say(json, *(_result(place, job) for job in ended))
    return 0 if all(job.succeeded for job in ended) else 1


def _goes_on(submitted: Sequence[Submitted], start: str = "") -> None:
    ids = [job.id for job in submitted]
    verb = "goes on" if len(ids) == 1 else "go on"
    sys.stderr.write(f"{start}job {', '.join(ids)} {verb}; `{program()} slurm.cancel {','.join(ids)}` ends it\n")


def _progress(job: SlurmJob) -> None:
    place = f" on {job.nodes}" if job.state == "RUNNING" and job.nodes else ""
    sys.stderr.write(printable(f"job {job.id} {job.words}{place}\n"))


def _silent(reason: str) -> None:
    sys.stderr.write(printable(f"Slurm does not answer, and is asked again: {reason}\n"))


def _result(place: Place, job: SlurmJob) -> str:
    seconds = "" if job.seconds is None else f" after {job.seconds:g} s"
    return f"job {job.id} {job.words}{seconds}, log {log_path(place, job.log)}"


def _submitted(place: Place, job: Submitted) -> dict[str, Any]:
    return {"id": job.id, "name": job.name, "log": job.log, "host_log": place.host_path(job.log) or None}
