"""Submission of a method on the console."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.errors import printable, program
from paddock.slurm.cli.job_parameters import Submit
from paddock.slurm.cli.jobs import document, log_path
from paddock.slurm.cli.table import say
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.programs.jobs import Job
from paddock.slurm.programs.place import Place, find
from paddock.slurm.submit.method import load
from paddock.slurm.submit.submission import Submitted, Submitter
from paddock.slurm.submit.waiting import wait
from paddock.terminal import JsonOutput, caller_path, json_errors

_INTERRUPTED = 130
_MOST = 1000


def submit(flags: Mapping[str, Any], command: Sequence[str]) -> int:
    """Submit a method and return the exit code. Raises SlurmError."""
    parameters = Submit.from_flags(flags)
    return _submit(parameters, command, json=JsonOutput.parse(parameters.json))


@json_errors
def _submit(parameters: Submit, command: Sequence[str], *, json: JsonOutput) -> int:
    if not 1 <= parameters.count <= _MOST:
        raise SlurmInputError(
            f"--count: {parameters.count} jobs make no sense\n    expected: 1 to {_MOST}"
            "\n    fix: an array in method.json holds more"
        )
    path = caller_path(str(parameters.method))
    method, script = load(path, command)  # a mistake in the file is said before Slurm is asked
    submitter = Submitter(find(parameters.prefix))
    prepared = submitter.prepare(method, script, str(path))
    sys.stderr.writelines(f"{printable(note)}\n" for note in prepared.options.notes)
    if parameters.dry_run:
        json.write({"schema": 1, "options": list(prepared.options.words), "script": prepared.script, "jobs": []})
        if not json.replaces_text:
            say(f"sbatch {' '.join(prepared.options.words)}", prepared.script.rstrip("\n"), "nothing was submitted")
        return 0
    submitted: list[Submitted] = []
    try:
        for _ in range(parameters.count):
            submitted.append(submitter.submit(prepared))
            if not json.replaces_text:
                say(
                    f"job {submitted[-1].id} ({submitted[-1].name}), log {log_path(submitter.place, submitted[-1].log)}"
                )
    except BaseException:
        if submitted:
            _goes_on(submitted, "not all jobs were submitted: ")
        raise
    if not parameters.wait:
        json.write({"schema": 1, "jobs": [_submitted(submitter.place, job) for job in submitted]})
        return 0
    return _wait(submitter.place, submitted, json)


def _wait(place: Place, submitted: Sequence[Submitted], json: JsonOutput) -> int:
    try:
        ended = wait(place, [job.id for job in submitted], _progress, _silent)
    except KeyboardInterrupt:
        _goes_on(submitted)
        return _INTERRUPTED
    json.write({"schema": 1, "jobs": [document(place, job) for job in ended]})
    if not json.replaces_text:
        say(*(_result(place, job) for job in ended))
    return 0 if all(job.succeeded for job in ended) else 1


def _goes_on(submitted: Sequence[Submitted], start: str = "") -> None:
    ids = [job.id for job in submitted]
    verb = "goes on" if len(ids) == 1 else "go on"
    sys.stderr.write(f"{start}job {', '.join(ids)} {verb}; `{program()} slurm.cancel {','.join(ids)}` ends it\n")


def _progress(job: Job) -> None:
    place = f" on {job.nodes}" if job.state == "RUNNING" and job.nodes else ""
    sys.stderr.write(printable(f"job {job.id} {job.words}{place}\n"))


def _silent(reason: str) -> None:
    sys.stderr.write(printable(f"Slurm does not answer, and is asked again: {reason}\n"))


def _result(place: Place, job: Job) -> str:
    seconds = "" if job.seconds is None else f" after {job.seconds:g} s"
    return f"job {job.id} {job.words}{seconds}, log {log_path(place, job.log)}"


def _submitted(place: Place, job: Submitted) -> dict[str, Any]:
    return {"id": job.id, "name": job.name, "log": job.log, "host_log": place.host_path(job.log) or None}
