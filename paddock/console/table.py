"""The one table: a narrow terminal loses columns, which are named, and never letters."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence

from paddock.console.output import NARROWEST
from paddock.errors import printable

_GAP = 2


def width() -> int | None:
    """Return the columns of the terminal; None where nothing limits a line, as in a pipe."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return max(int(columns), NARROWEST)
    return max(shutil.get_terminal_size().columns, NARROWEST) if sys.stdout.isatty() else None


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    drop: Sequence[str] | None = None,
    limit: int | None = None,
) -> Iterator[str]:
    """Yield the lines of a table within `limit` characters, by default the terminal's.

    `head`: titles. A row that ends early is as wide as it likes. `right`: columns of numbers. `drop`: columns in the
    order in which they go where there is no room, by default from the last to the second.
    """
    limit = width() if limit is None else limit
    cells = [[printable(cell) for cell in row] for row in rows]
    columns = list(range(len(head)))
    titles = list(head)
    widths = [max(len(line[c]) for line in [titles, *cells] if len(line) == len(titles)) for c in columns]
    going = [titles.index(name) for name in (drop if drop is not None else titles[:0:-1])]
    left: list[str] = []
    while limit is not None and going and sum(widths[c] + _GAP for c in columns) - _GAP > limit:
        columns.remove(going[0])
        left.append(titles[going.pop(0)])
    for line in [titles, *cells]:
        if len(line) < len(titles):
            yield (" " * _GAP).join(line)
            continue
        chosen = (line[c].rjust(widths[c]) if titles[c] in right else line[c].ljust(widths[c]) for c in columns)
        yield (" " * _GAP).join(chosen).rstrip()
    if left:
        yield f"not shown for lack of width: {', '.join(left)}"
