"""The one error of every source: a datum that could not be read."""

from __future__ import annotations

from paddock.errors import PaddockError


class Unavailable(PaddockError):
    """A datum could not be read. `permission` is the right that is missing, where that is the reason."""

    def __init__(self, message: str, fix: str = "", permission: str = "") -> None:
        super().__init__(message)
        self.fix, self.permission = fix, permission


class NotFound(Unavailable):
    """The source answered that the thing does not exist."""


def split_error(error: PaddockError) -> tuple[str, str]:
    """Return the sentence and the fix of an error's text."""
    sentence, *rest = str(error).splitlines()
    fixes = [line.strip().removeprefix("fix: ") for line in rest if line.strip().startswith("fix: ")]
    return sentence, "; ".join(fixes)
