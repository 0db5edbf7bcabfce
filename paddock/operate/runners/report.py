"""Results of a change of runners: what `--json` prints."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA: Final = "paddock.runners/1"
Command = Literal["drain", "resume", "recycle"]
State = Literal["done", "unchanged", "planned", "skipped", "failed"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Model):
    """One object, and what was done with it."""

    object: str
    """Kind, namespace and name."""
    state: State
    message: str
    fix: str = ""


class Work(_Model):
    """One runner that is still there."""

    runner: str
    scale_set: str
    job: str | None
    """The job that it runs; None where it has none (yet)."""
    workflow: str | None = None
    seconds: float
    """Age of the runner."""


class Report(_Model):
    """Outcome of one command."""

    schema_: str = Field(SCHEMA, alias="schema", serialization_alias="schema")
    command: Command
    stack: str
    fleet: str
    context: str
    at: datetime
    steps: tuple[Step, ...] = ()
    left: tuple[Work, ...] | None = None
    """Runners that are still there after a drain; None where they were not read."""
    interrupted: bool = False
    late: bool = False
    """True where runners were left at the deadline of `--wait`."""
    next: str = ""
    """Command that goes on, or undoes it."""

    @property
    def failed(self) -> bool:
        return self.interrupted or self.late or any(step.state == "failed" for step in self.steps)
