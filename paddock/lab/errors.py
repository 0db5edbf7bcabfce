"""Errors of the lab, whose text a user reads."""

from __future__ import annotations

from paddock.errors import PaddockError


class LabError(PaddockError):
    """An operation of the lab failed."""


class LabInputError(LabError):
    """A request that cannot be fulfilled: a port in use, an unknown name, a missing program."""

    exit_code = 2
