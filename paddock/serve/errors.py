"""Errors of this room."""

from __future__ import annotations

from paddock.errors import PaddockError


class ServeError(PaddockError):
    """A model cannot be served."""


class ServeInputError(ServeError):
    """A file, flag or request is wrong."""

    exit_code = 2


class PromptTooLong(ServeError):
    """A prompt has more tokens than the context."""


class RankLost(ServeError):
    """A rank of a gang, or a stage of a pipeline, has ended or failed, and the instance with it."""


def in_one_line(error: BaseException) -> str:
    """Return the lines of an error as one: others show the last line of a failure alone."""
    return "; ".join(line.strip() for line in str(error).splitlines())


def first_line(error: BaseException | None) -> str:
    """Return the first line of an error, or its kind where it says nothing."""
    return (str(error).strip().partition("\n")[0] or type(error).__name__) if error else "it does not say why"
