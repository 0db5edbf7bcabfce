"""Errors of the smoke tests."""

from __future__ import annotations

from paddock.errors import PaddockError


class SmokeInputError(PaddockError):
    """A flag or a file is not valid; nothing was tested."""

    exit_code = 2
