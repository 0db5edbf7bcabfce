"""The user's folders: docker's settings, and what builds keep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paddock.images.errors import BuildInputError


def settings(environ: Mapping[str, str]) -> Path:
    """Return the folder of docker's settings."""
    return Path(environ.get("DOCKER_CONFIG") or _home(environ) / ".docker")


def cache(environ: Mapping[str, str]) -> Path:
    """Paddock's folder in the user's cache."""
    return Path(environ.get("XDG_CACHE_HOME") or _home(environ) / ".cache") / "paddock"


def logs(environ: Mapping[str, str]) -> Path:
    """In the user's cache."""
    return cache(environ) / "build"


def _home(environ: Mapping[str, str]) -> Path:
    try:
        return Path(environ.get("HOME") or Path.home())
    except RuntimeError:
        raise BuildInputError(
            "this user has no home folder\n    expected: one, for docker's settings and what builds keep"
            "\n    fix: set HOME to a folder that may be written"
        ) from None
