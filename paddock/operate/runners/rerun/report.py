"""One look at jobs whose nodes may have been taken back: a line a job, then what could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from paddock.operate.report import OfFleet, code, part

State = Literal["rerun", "planned", "waits", "left", "unknown", "failed"]


@dataclass(frozen=True, kw_only=True)
class JobLine:
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


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A part that could not be read, so that jobs may be missing."""

    part: str
    reason: str
    fix: str = ""
    permission: str = ""


@dataclass(frozen=True, kw_only=True)
class JobsRerun(OfFleet):
    """Outcome of one look."""

    SCHEMA = "paddock.rerun/1"
    context: str | None
    at: datetime
    since: datetime
    """Jobs that ended before it are not looked at."""
    repositories: tuple[str, ...]
    jobs: tuple[JobLine, ...]
    unread: tuple[Unread, ...] = ()
    interrupted: bool = False
    """True where Ctrl-C ended the look, so that jobs may be missing."""

    @property
    def failed(self) -> bool:
        return bool(self.unread) or any(line.state == "failed" for line in self.jobs)

    @property
    def exit_code(self) -> int:
        return code(interrupted=self.interrupted, failed=self.failed)

    def text(self) -> Iterator[str]:
        where = f"context {self.context}" if self.context else "cluster unknown"
        yield self.heading("runners.rerun", where, f"jobs since {self.since:%Y-%m-%d %H:%M} UTC")
        if not self.jobs:
            yield f"  no job of the fleet's runners has failed in {', '.join(self.repositories) or 'any repository'}"
        yield from _lines(self.jobs)
        yield from self._unread()
        if self.interrupted:
            yield "  interrupted; the lines above are done; run it again to see the rest"

    def news(self, jobs: Iterable[JobLine]) -> Iterator[str]:
        """Yield the lines of some jobs, and below them what could not be read."""
        yield from _lines(jobs)
        if jobs:
            yield from self._unread()

    def _unread(self) -> Iterator[str]:
        parts: dict[tuple[str, str], list[str]] = {}
        for unread in self.unread:
            parts.setdefault((unread.reason, unread.fix), []).append(unread.part)
        for (reason, fix), names in parts.items():
            yield f"  {', '.join(names)} not known: {reason}"
            if fix:
                yield f"              fix: {fix}"


def _lines(jobs: Iterable[JobLine]) -> Iterator[str]:
    for job in jobs:
        about = f"{job.repository}, run {job.run}, attempt {job.attempt}, {job.name}: {job.message}"
        yield from part(job.state, about, job.fix)
