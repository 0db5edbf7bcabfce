"""Progress of long work on standard error: one moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from paddock.errors import printable

_CLEAR = "\r\033[K"


class Progress:
    """Steps of a command. On a terminal the current one moves in place; elsewhere each is a line, and none twice.

    `quiet` says nothing where there is no terminal.
    """

    def __init__(self, out: IO[str] | None = None, *, quiet: bool = False) -> None:
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._silent = quiet and not self._live
        self._last, self._began = "", time.monotonic()
        self.seconds: dict[str, float] = {}
        """Steps that `step` timed, in seconds."""

    @property
    def total(self) -> float:
        """Seconds since the beginning."""
        return round(time.monotonic() - self._began, 2)

    def now(self, text: str) -> None:
        """Say what is being done now."""
        if text != self._last and not self._silent:
            self._write(f"{_CLEAR}{printable(text)}" if self._live else f"{printable(text)}\n")
        self._last = text

    def share(self, text: str, done: float, whole: float) -> None:
        """Say how much of a whole is done; elsewhere than on a terminal a line for each tenth."""
        part = min(1.0, done / whole) if whole > 0 else 0.0
        self.now(f"{text} {part:4.0%}" if self._live else f"{text} {int(part * 10) * 10} %")

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.clear()
        if not self._silent:
            self._write(f"{printable(text)}\n")

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Time a step, and print its line when it is done. Yields what says how far it is, on a terminal."""
        began = time.monotonic()

        def report(text: str) -> None:
            if self._live:
                self.now(f"{'':10}{name} {text}")

        report("...")
        try:
            yield report
        finally:
            self.clear()
        self.seconds[name] = round(time.monotonic() - began, 2)
        self.say(f"{self.seconds[name]:7.1f} s  {name}")

    def clear(self) -> None:
        """Remove the moving line."""
        if self._live and self._last:
            self._write(_CLEAR)
        self._last = ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress]:
    """Yield a progress whose moving line is removed at the end."""
    shown = Progress(quiet=quiet)
    try:
        yield shown
    finally:
        shown.clear()
