"""The console program `paddock`, which `./inv` becomes once its environment is ready."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from paddock.console.command import Entry
from paddock.console.contents import Contents
from paddock.console.program import run
from paddock.tasks import ALIASES, HIDDEN, ON_A_NODE, RENAMED, TABLE


def contents() -> Contents:
    """Return every command."""
    entries = (
        Entry(name, where, summary, group, hidden=group == HIDDEN)
        for group, lines in TABLE.items()
        for name, _, where, summary in lines
    )
    return Contents(tuple(entries), ALIASES, RENAMED, ON_A_NODE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = list(sys.argv if argv is None else argv)
    if os.path.basename(words[0]).partition(".")[0] == "paddock":
        os.environ["PADDOCK_PROGRAM"] = "paddock"
    return run(contents(), words[1:])
