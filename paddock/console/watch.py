"""The one loop that looks again and again, and shows what it sees in place."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable

from paddock.errors import printable


class Screen:
    """Lines on standard output: on a terminal they replace those before them, elsewhere they follow one another."""

    def __init__(self) -> None:
        self._live, self._rows = sys.stdout.isatty(), 0

    def show(self, lines: Iterable[str]) -> None:
        """Show these lines now."""
        shown = [printable(line) for line in lines]
        if self._live and self._rows:
            sys.stdout.write(f"\033[{self._rows}A\033[J")
        sys.stdout.write("".join(f"{line}\n" for line in shown))
        sys.stdout.flush()
        columns = shutil.get_terminal_size().columns or 80
        self._rows = sum(max(1, -(-len(line) // columns)) for line in shown)  # a long line has several rows


def watch(look: Callable[[], Iterable[str]], *, every: float) -> None:
    """Show the lines of each look, every so many seconds, until Ctrl-C."""
    screen = Screen()
    try:
        while True:
            screen.show(look())
            time.sleep(every)
    except KeyboardInterrupt:
        return
