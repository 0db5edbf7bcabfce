"""Errors of resource modes."""

from __future__ import annotations

from paddock.errors import PaddockError


class ModeError(PaddockError):
    """A resource mode cannot be kept to."""


class ModeInputError(ModeError):
    """A mode or a policy is not valid; nothing was changed."""

    exit_code = 2
