"""Jobs on the console: the queue, results, and cancelling."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from typing import Any

from paddock.errors import program
from paddock.slurm.cli.job_parameters import Cancel, Status
from paddock.slurm.cli.table import say, table
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.programs import jobs
from paddock.slurm.programs.jobs import Job
from paddock.slurm.programs.place import Place, find
from paddock.terminal import JsonOutput, json_errors


def status(flags: Mapping[str, Any]) -> int:
    """Show the queue and the results of ended jobs. Raises SlurmError."""
    parameters = Status.from_flags(flags)
    return _status(parameters, json=JsonOutput.parse(parameters.json))


@json_errors
def _status(parameters: Status, *, json: JsonOutput) -> int:
    if parameters.last < 0:
        raise SlurmInputError(f"--last: {parameters.last} jobs make no sense\n    expected: 0 or more")
    ids = [_id(word) for word in parameters.job]
    place = find(parameters.prefix)
    shown = jobs.find(place, ids) if ids else jobs.every(place)
    queue = [job for job in shown if not job.final]
    ended = sorted((job for job in shown if job.final), key=lambda job: job.ended or "")
    ended = ended if ids else ended[max(0, len(ended) - parameters.last) :]
    ended = jobs.explained(place, ended)
    json.write({"schema": 1, "slurm": place.name, "jobs": [document(place, job) for job in [*queue, *ended]]})
    if json.replaces_text:
        return 0
    if queue or not ended:
        rows = ((job.id, job.name, job.user, job.gpus, job.started or "", _state(job)) for job in queue)
        table(("job", "name", "user", "GPUs", "started", "state"), rows, "the queue is empty")
    if ended:
        if queue:
            say("")
        results = ((job.id, job.name, job.words, _seconds(job), log_path(place, job.log)) for job in ended)
        table(("job", "name", "result", "ran", "log"), results, "")
    return 0


def _state(job: Job) -> str:
    return f"runs on {job.nodes}" if job.state == "RUNNING" else job.words


def _seconds(job: Job) -> str:
    return "" if job.seconds is None else f"{job.seconds:g} s"


def cancel(flags: Mapping[str, Any]) -> int:
    """Cancel jobs. Raises SlurmError."""
    parameters = Cancel.from_flags(flags)
    return _cancel(parameters, json=JsonOutput.parse(parameters.json))


@json_errors
def _cancel(parameters: Cancel, *, json: JsonOutput) -> int:
    ids = [_id(word) for word in parameters.job]
    if not ids:
        raise SlurmInputError(f"there is no job to cancel\n    expected: {program()} slurm.cancel 12,13")
    place = find(parameters.prefix)
    states = {id: jobs.find(place, [id]) for id in ids}
    cancelled = [id for id in ids if not all(job.final for job in states[id])]
    for id in cancelled:
        tasks = [job.id for job in states[id] if not job.final]
        for task in [id] if id in (states[id][0].array, states[id][0].id) else tasks:
            jobs.cancel(place, task, _user())
    json.write({"schema": 1, "cancelled": cancelled, "ended_before": [id for id in ids if id not in cancelled]})
    if not json.replaces_text:
        for id in ids:
            say(f"job {id} cancelled" if id in cancelled else f"job {id} had ended before: {states[id][0].words}")
    return 0


def _user() -> str:
    """Return the user's name, or number where the machine has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _id(word: str) -> str:
    number, _, task = word.partition("_")
    if not (number.isascii() and number.isdecimal() and (not task or (task.isascii() and task.isdecimal()))):
        raise SlurmInputError(f"{word!r} is no job's number\n    expected: a number such as 12, or 12_3 for a task")
    return word


def document(place: Place, job: Job) -> dict[str, Any]:
    """Return a job as JSON."""
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "state": job.state,
        "words": job.words,
        "reason": job.reason if job.state == "PENDING" else None,
        "nodes": job.nodes or None,
        "gpus": job.gpus or None,
        "submitted": job.submitted,
        "started": job.started,
        "ended": job.ended,
        "seconds": job.seconds,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "out_of_memory": job.out_of_memory or job.state == "OUT_OF_MEMORY",
        "log": job.log or None,
        "host_log": place.host_path(job.log) or None if job.log else None,
    }


def log_path(place: Place, path: str) -> str:
    """Return the path of a log where the user can read it; on the node where the host has it not."""
    if not path:
        return "unknown"
    return place.host_path(path) or f"{path} in {place.name}"
