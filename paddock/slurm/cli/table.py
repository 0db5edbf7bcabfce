"""Lines and tables on the console."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from paddock.errors import printable


def say(*lines: str) -> None:
    """Print lines at once, without characters that steer a terminal."""
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    sys.stdout.flush()


def table(head: Sequence[str], rows: Iterable[Sequence[str]], otherwise: str) -> None:
    """Print rows in columns, which no width cuts, or `otherwise` where there are none."""
    lines = [tuple(map(printable, row)) for row in rows]
    if not lines:
        say(otherwise)
        return
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    for line in (head, *lines):
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        say("  ".join(cells).rstrip())
