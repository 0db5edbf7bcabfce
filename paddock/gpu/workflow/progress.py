"""A workflow while it runs: a table that moves on a terminal, else a line for each thing that happens."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from paddock import terminal
from paddock.gpu.workflow.engine import StepEvent, Watch
from paddock.gpu.workflow.model import Workflow

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS = {"succeeded": "green", "reused": "green", "started": "cyan", "failed": "red", "interrupted": "red"}


@contextmanager
def watching(workflow: Workflow, file: IO[str] | None = None) -> Iterator[Watch]:
    """Yield the function that `engine.run` calls for each step; it writes to `file`, by default standard error."""
    file = file or sys.stderr
    if file.isatty():
        with _moving(workflow, file) as watch:
            yield watch
    else:
        yield lambda event: _line(event, file)


def _line(event: StepEvent, file: IO[str]) -> None:
    took = f" after {event.seconds:.1f} s" if event.seconds else ""
    detail = f": {event.detail}" if event.detail else ""
    file.write(f"{time.strftime('%H:%M:%S')} {event.step.id} {event.status}{took}{detail}\n")
    file.flush()


@contextmanager
def _moving(workflow: Workflow, file: IO[str]) -> Iterator[Watch]:
    from rich.live import Live

    last: dict[str, tuple[StepEvent, float]] = {}
    changing = threading.Lock()

    def watch(event: StepEvent) -> None:
        with changing:
            last[event.step.id] = (event, time.monotonic())

    def table() -> Table:
        with changing:
            return _table(workflow, dict(last))

    with Live(console=terminal.console(file), get_renderable=table, refresh_per_second=4):
        yield watch


def _table(workflow: Workflow, last: dict[str, tuple[StepEvent, float]]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for step in workflow.steps:
        if step.id not in last:
            table.add_row(escape(step.name), "[dim]waits[/]", "", "")
            continue
        event, at = last[step.id]
        seconds = event.seconds or (time.monotonic() - at if event.status == "started" else 0)
        colour = _COLOURS.get(event.status, "yellow")
        took = f"{seconds:.0f} s" if seconds else ""
        reason = event.detail.splitlines()[0] if event.detail else ""
        table.add_row(escape(step.name), f"[{colour}]{event.status}[/]", took, escape(reason))
    return table
