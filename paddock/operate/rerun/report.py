"""One look at jobs whose nodes may have been taken back: what `--json` prints."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA: Final = "paddock.rerun/1"
State = Literal["rerun", "planned", "waits", "left", "unknown", "failed"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Line(_Model):
    """One job that failed or was cancelled, and what was done with it.

    `waits`: it is to run again, and GitHub does not do it yet. `failed`: GitHub refused.
    """

    repository: str
    run: int
    job: int
    name: str
    workflow: str
    url: str
    attempt: int
    runner: str
    state: State
    message: str
    fix: str = ""
    permission: str = ""
    node: str | None = None
    instance: str | None = None


class Unread(_Model):
    """A part that could not be read, so that jobs may be missing."""

    part: str
    reason: str
    fix: str = ""
    permission: str = ""


class Report(_Model):
    """Outcome of one look."""

    schema_: str = Field(SCHEMA, alias="schema", serialization_alias="schema")
    stack: str
    fleet: str
    context: str | None
    at: datetime
    since: datetime
    """Jobs that ended before it are not looked at."""
    repositories: tuple[str, ...]
    jobs: tuple[Line, ...]
    unread: tuple[Unread, ...] = ()
    interrupted: bool = False
    """True where Ctrl-C ended the look, so that jobs may be missing."""

    @property
    def failed(self) -> bool:
        return bool(self.unread) or any(line.state == "failed" for line in self.jobs)
