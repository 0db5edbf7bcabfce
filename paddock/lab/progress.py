"""Progress of a command: on a terminal the current step, elsewhere a line for each finished one."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO


class Progress:
    """Steps with their times. `quiet` prints nothing, for output in JSON."""

    def __init__(self, out: IO[str] | None = None, *, quiet: bool = False) -> None:
        self.out, self.quiet = out or sys.stderr, quiet
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Time one step and print its line on success. Yields a function that shows its progress on a terminal."""
        started = time.monotonic()
        live = not self.quiet and self.out.isatty()

        def report(progress: str) -> None:
            if live:
                self.out.write(f"\r\033[K{'':10}{name} {progress}")
                self.out.flush()

        report("...")
        try:
            yield report
        finally:
            if live:
                self.out.write("\r\033[K")
        self.seconds[name] = round(time.monotonic() - started, 2)
        self.say(f"{self.seconds[name]:7.1f} s  {name}")

    def say(self, text: str) -> None:
        if not self.quiet:
            self.out.write(f"{text}\n")
            self.out.flush()

    @property
    def total(self) -> float:
        return round(time.monotonic() - self.began, 2)
