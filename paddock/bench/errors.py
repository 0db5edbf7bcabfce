"""Errors of the benchmark."""

from __future__ import annotations

from paddock.errors import PaddockError


class BenchError(PaddockError):
    """A benchmark could not run, or could not continue."""


class BenchInputError(BenchError):
    """A flag or a file is not valid; nothing was measured."""

    exit_code = 2
