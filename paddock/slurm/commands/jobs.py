"""Jobs as the commands show them."""

from __future__ import annotations

from typing import Any

from paddock.console.parameters import parameter
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.programs.jobs import SlurmJob
from paddock.slurm.programs.place import Place


def prefix() -> Any:
    """Declare the parameter that says which Slurm is meant."""
    return parameter(
        "", "use the container PREFIX-slurm; by default a Slurm of this machine that answers, else paddock-slurm"
    )


def job_id(word: str) -> str:
    """Return the number of a job. Raises SlurmInputError."""
    number, _, task = word.partition("_")
    if not (number.isascii() and number.isdecimal() and (not task or (task.isascii() and task.isdecimal()))):
        raise SlurmInputError(f"{word!r} is not a job's number\n    expected: a number such as 12, or 12_3 for a task")
    return word


def document(place: Place, job: SlurmJob) -> dict[str, Any]:
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
