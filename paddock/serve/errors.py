"""Errors of this room."""

from __future__ import annotations

from paddock.errors import PaddockError


class ServeError(PaddockError):
    """A model cannot be served."""


class ServeInputError(ServeError):
    """A file, flag or request is wrong."""

    exit_code = 2
