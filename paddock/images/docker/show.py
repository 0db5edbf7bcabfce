"""Display of the engine's work: on a terminal one live line, elsewhere a line for each completed step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import IO, TYPE_CHECKING, Literal

from paddock.console import output as terminal
from paddock.images.errors import BuildInputError

if TYPE_CHECKING:
    from rich.live import Live

Progress = Literal["auto", "plain", "quiet"]


def progress_of(text: str, *, quiet: bool) -> Progress:
    """Return how a build shows its steps; with JSON it shows none. Raises BuildInputError."""
    match text:
        case "auto" | "plain" | "quiet":
            return "quiet" if quiet else text
        case _:
            raise BuildInputError(
                f"--progress {text} is not known\n    expected: auto, plain or quiet\n    fix: leave it out"
            )


class Show:
    """Writes to stderr, so that what a task prints stays its own. `plain` passes on what docker says, whole."""

    def __init__(self, progress: Progress, now: Callable[[], str], out: IO[str] | None = None) -> None:
        """`now` says what is under way, whenever the terminal asks."""
        self._progress, self._now = progress, now
        self._out = out or sys.stderr
        self._live: Live | None = None

    def __enter__(self) -> Show:
        if self._progress == "auto" and self._out.isatty():
            from rich.live import Live
            from rich.text import Text

            self._live = Live(
                get_renderable=lambda: Text(self._now(), no_wrap=True, overflow="ellipsis"),
                console=terminal.console(self._out),
                refresh_per_second=4,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def line(self, text: str) -> None:
        """Print a line of docker's own output."""
        if self._progress == "plain":
            print(text, file=self._out, flush=True)

    def ended(self, how: str, name: str) -> None:
        """A part of the work, with its seconds or another short word for its end."""
        if self._progress != "auto":
            return
        text = f"{how:>8}  {name}"
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, no_wrap=True, overflow="ellipsis")
        else:
            print(text, file=self._out, flush=True)
