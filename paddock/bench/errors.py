"""Errors of the benchmark."""

from __future__ import annotations

from paddock.errors import PaddockError


class BenchError(PaddockError):
    """A benchmark could not run, or could not go on."""


class BenchInputError(BenchError):
    """A flag or a file makes no sense; nothing was measured."""

    exit_code = 2
