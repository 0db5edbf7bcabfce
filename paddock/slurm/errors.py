"""Errors of this room."""

from __future__ import annotations

from paddock.errors import PaddockError


class SlurmError(PaddockError):
    """Slurm, Docker or the machine cannot do it."""

    exit_code = 1


class SlurmInputError(SlurmError):
    """A file, flag or request is wrong."""

    exit_code = 2


class NoSuchJobError(SlurmInputError):
    """A job that Slurm does not have."""

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(
            f"Slurm has no job {id}\n    expected: a job of its queue, or of its file of completed jobs"
            "\n    fix: `squeue` shows the queue"
        )
