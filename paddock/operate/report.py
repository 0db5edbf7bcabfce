"""Parts that reports about a fleet have in common: a heading, a line for each part, an exit code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paddock.console.report import Report
from paddock.errors import INTERRUPTED


@dataclass(frozen=True, kw_only=True)
class OfFleet(Report):
    """Base of reports about the fleet of a stack."""

    stack: str
    fleet: str

    def heading(self, title: str, *more: str) -> str:
        return "  ".join([f"{title}: {self.stack}", self.fleet, *more])


def part(state: str, text: str, fix: str = "", details: Iterable[str] = (), *, width: int = 11) -> Iterator[str]:
    """Yield the line of a part with its state, which takes so many columns; below it the details and the fix."""
    yield f"  {state:{width}} {text}"
    for line in (*details, *([f"fix: {fix}"] if fix else ())):
        yield f"{'':{width + 3}}{line}"


def code(*, interrupted: bool, failed: bool) -> int:
    """Return the exit code of work that Ctrl-C may have ended."""
    return INTERRUPTED if interrupted else int(failed)
