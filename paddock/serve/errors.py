"""Errors of this room."""

from __future__ import annotations

import re

from paddock.errors import PaddockError

_COLOUR = re.compile(r"(?:\x1b|\\x1b)\[[0-9;]*m")


class ServeError(PaddockError):
    """A model cannot be served."""


class ServeInputError(ServeError):
    """A file, flag or request is wrong."""

    exit_code = 2


def in_one_line(error: BaseException) -> str:
    """Return the lines of an error as one: others show the last line of a failure alone."""
    return "; ".join(line.strip() for line in str(error).splitlines())


def last_line(error: BaseException) -> str:
    """Return the last line of an error of Ray's, where it names the cause, without the colours of a terminal."""
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def first_line(error: BaseException | None) -> str:
    """Return the first line of an error, or its kind where it says nothing."""
    return (str(error).strip().partition("\n")[0] or type(error).__name__) if error else "it does not say why"
