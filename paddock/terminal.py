"""What every task prints and writes with."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from paddock import files
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from rich.console import Console


NARROWEST = 40
"""Columns below which nothing can be laid out: a terminal that says less has not been asked."""


class BadFlag(PaddockError):
    """A flag whose value makes no sense."""

    exit_code = 2


class OutputError(PaddockError):
    """A file that was to be written cannot be."""

    exit_code = 2


def console(file: IO[str] | None = None) -> Console:
    """A console without any escape codes where the output is no terminal or NO_COLOR is set."""
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would end with 1, which says that the plan has errors

    file = file or sys.stdout
    terminal = file.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or not terminal
    columns = os.environ.get("COLUMNS", "")
    width = None if terminal else int(columns) if columns.isdecimal() and int(columns) else 120
    made = Ours(file=file, color_system=None if plain else "auto", width=width, highlight=False)
    made.width = max(made.width, NARROWEST)
    return made


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises OutputError."""
    try:
        files.write(path, text)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror}\n    fix: choose a file in a folder that exists and is yours"
        ) from None
