"""What a person sees while the engine works: on a terminal one line that lives, elsewhere a line for each end."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import IO, TYPE_CHECKING, Literal

from paddock import terminal
from paddock.build.docker.steps import Step

if TYPE_CHECKING:
    from rich.status import Status

Progress = Literal["auto", "plain", "quiet"]


class Show(AbstractContextManager["Show"]):
    """Written to stderr, so that what a task prints stays its own."""

    def __init__(self, progress: Progress, out: IO[str] | None = None) -> None:
        self._out = out or sys.stderr
        self._progress = progress
        self._stack = ExitStack()
        self._status: Status | None = None

    def __enter__(self) -> Show:
        if self._progress == "auto" and self._out.isatty():
            from rich.status import Status

            self._status = Status("", console=terminal.console(self._out))
            self._stack.enter_context(self._status)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def line(self, text: str) -> None:
        """What docker itself has printed, for those who asked for all of it."""
        if self._progress == "plain":
            self._say(text)

    def ended(self, step: Step) -> None:
        if self._progress == "auto":
            self._say(f"{'cached' if step.state == 'cached' else f'{step.seconds:.1f} s':>8}  {step.name}")

    def now(self, text: str) -> None:
        """What is under way."""
        if self._status is not None:
            from rich.text import Text

            self._status.update(Text(text, no_wrap=True, overflow="ellipsis"))

    def _say(self, text: str) -> None:
        if self._status is not None:
            self._status.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self._out, flush=True)
