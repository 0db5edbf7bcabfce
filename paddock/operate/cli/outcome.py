"""Outcome of a command that works in phases: printed, and turned into an exit code."""

from __future__ import annotations

from collections.abc import Callable

from paddock.operate.lifecycle.report import Work
from paddock.terminal import JsonOutput

INTERRUPTED = 130


def finish(outcome: Work, json: JsonOutput, show: Callable[[], None]) -> int:
    """Print an outcome, and return the exit code."""
    json.write(outcome.model_dump(mode="json", by_alias=True))
    if not json.replaces_text:
        show()
    return INTERRUPTED if outcome.interrupted else int(outcome.failed)


def show_phases(outcome: Work, line: Callable[[str], None]) -> None:
    """Print a line a phase, what it stopped at, and the command that goes on."""
    for phase in outcome.phases:
        line(f"  {phase.state:11} {phase.name}: {phase.message}")
        if phase.state in ("failed", "interrupted"):
            for text in phase.details:
                line(f"              {text}")
        if phase.fix:
            line(f"              fix: {phase.fix}")
    if outcome.next:
        line(f"  {outcome.next}")
