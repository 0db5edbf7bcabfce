"""Display of a build in progress: a line for each change and, on a terminal, the current step below them."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from types import TracebackType
from typing import IO, Any

from paddock.terminal import console


class ProgressReporter:
    """Lines go to standard error, so that standard output holds the result alone."""

    def __init__(self, out: IO[str] | None = None) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        screen = console(out or sys.stderr)
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=screen,
            transient=True,
            disable=not screen.is_terminal,
            get_time=time.time,
        )
        self._under_way: Any = None

    def __enter__(self) -> ProgressReporter:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._live.console.print(text, markup=False, soft_wrap=True)

    def under_way(self, text: str, started: datetime | None) -> None:
        """Show the current activity; its clock runs by itself."""
        if self._live.disable:
            return
        if self._under_way is None:
            self._under_way = self._live.add_task(text, start=False, total=None)
        if started:
            self._live.tasks[0].start_time = started.timestamp()
        self._live.update(self._under_way, description=text)


def duration(seconds: float | None) -> str:
    """`3:05` or `1:02:31`; empty for None."""
    if seconds is None:
        return ""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
