"""Results of a change of runners: a line an object, then the runners that are left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from paddock.operate.report import OfFleet, code, part

Command = Literal["drain", "resume", "recycle"]
State = Literal["done", "unchanged", "planned", "skipped", "failed"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One object, and what was done with it."""

    object: str
    """Kind, namespace and name."""
    state: State
    message: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Left:
    """One runner that is still there."""

    runner: str
    scale_set: str
    job: str | None
    """The job that it runs; None where it has none (yet)."""
    workflow: str | None = None
    seconds: float
    """Age of the runner."""


@dataclass(frozen=True, kw_only=True)
class RunnersChanged(OfFleet):
    """Outcome of one command."""

    SCHEMA = "paddock.runners/1"
    command: Command
    context: str
    at: datetime
    steps: tuple[Change, ...] = ()
    left: tuple[Left, ...] | None = None
    """Runners that are still there after a drain; None where they were not read."""
    interrupted: bool = False
    late: bool = False
    """True where runners were left at the deadline of `--wait`."""
    next: str = ""
    """Command that continues, or undoes it."""

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, "command": self.command, **super().document()}

    @property
    def failed(self) -> bool:
        return self.late or any(step.state == "failed" for step in self.steps)

    @property
    def exit_code(self) -> int:
        return code(interrupted=self.interrupted, failed=self.failed)

    def text(self) -> Iterator[str]:
        yield self.heading(f"runners.{self.command}", f"context {self.context}")
        for step in self.steps:
            yield from part(step.state, f"{step.object}: {step.message}", step.fix)
        if not self.steps:
            yield "  nothing to do"
        for runner in self.left or ():
            yield from part("left", f"{runner.runner}: {runner.job or 'no job'}, {runner.seconds:.0f} s old")
        if self.left == ():
            yield "  no runner is left"
        if self.interrupted:
            yield "  interrupted; the lines above are done, the rest is not"
        if self.late:
            yield "  runners are left at the deadline"
        if self.next:
            yield f"  {self.next}"
