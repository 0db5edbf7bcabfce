"""Errors of builds, registries and AMIs."""

from __future__ import annotations

from paddock.errors import PaddockError


class BuildError(PaddockError):
    """A build, a registry or AWS failed."""


class BuildInputError(BuildError):
    """The request, a file or the machine is not what it must be; nothing was changed."""

    exit_code = 2
