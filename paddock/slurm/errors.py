"""Errors of this room."""

from __future__ import annotations

from paddock.errors import PaddockError


class SlurmError(PaddockError):
    """Slurm, Docker or the machine cannot do it."""

    exit_code = 1


class SlurmInputError(SlurmError):
    """A file, flag or request is wrong."""

    exit_code = 2
