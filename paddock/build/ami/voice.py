"""What a user sees while a build runs: a line for each change, and on a terminal below them what is under way."""

from __future__ import annotations

import signal
import sys
import threading
import time
from datetime import datetime
from types import FrameType, TracebackType
from typing import IO, Any

from paddock.terminal import console


class Voice:
    """Lines go to standard error, so that standard output holds the result alone.

    While it speaks SIGTERM is Ctrl-C: a CI system that cancels a job sends it, and wants to know what goes on.
    """

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
        self._before: Any = None

    def __enter__(self) -> Voice:
        self._live.start()
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._live.console.print(text, markup=False, soft_wrap=True)

    def under_way(self, text: str, began: datetime | None) -> None:
        """What is being done; its clock runs by itself."""
        if self._live.disable:
            return
        if self._under_way is None:
            self._under_way = self._live.add_task(text, start=False, total=None)
        if began:
            self._live.tasks[0].start_time = began.timestamp()
        self._live.update(self._under_way, description=text)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def duration(seconds: float | None) -> str:
    """`3:05` or `1:02:31`; empty for None."""
    if seconds is None:
        return ""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
