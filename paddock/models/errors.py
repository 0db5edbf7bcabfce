"""Errors of what a model's files say."""

from __future__ import annotations

from paddock.errors import PaddockError


class ModelError(PaddockError):
    """A file, a configuration or a name is not a model that can be sized. The text says which file and key, and why."""

    exit_code = 2


def error(what: str, expected: str = "", fix: str = "") -> ModelError:
    """Return the error with its further lines."""
    lines = [what, *(f"    {word}: {text}" for word, text in (("expected", expected), ("fix", fix)) if text)]
    return ModelError("\n".join(lines))
