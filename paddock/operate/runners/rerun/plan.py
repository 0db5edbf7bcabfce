"""Requests that run the chosen jobs of a run again: one attempt where that takes nothing else along. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.operate.runners.rerun.model import Job

_FAILED = ("failure", "cancelled", "timed_out", "action_required", "stale", "startup_failure")


@dataclass(frozen=True, slots=True)
class Request:
    """One request for a run. `jobs` come with it, `later` need an attempt of their own, `why` they wait."""

    kind: Literal["job", "failed-jobs", "none"]
    jobs: tuple[Job, ...]
    later: tuple[Job, ...] = ()
    why: str = ""
    note: str = ""
    """What else the attempt means."""


def request(chosen: Sequence[Job], every: Sequence[Job]) -> Request:
    """Return the request for a run of which these jobs are to run again. `every`: all jobs of its latest attempt."""
    first = chosen[0]
    if not first.run_over:
        return Request("none", (), tuple(chosen), "its run is still in progress, and GitHub runs no job of it again")
    ids = {job.id for job in chosen}
    others = [job.name for job in every if job.conclusion in _FAILED and job.id not in ids]
    stay = f"not run again with it: {', '.join(others[:3])}{' and more' if len(others) > 3 else ''}" if others else ""
    if len(chosen) == 1:
        return Request("job", (first,), note=stay)
    if not others:
        return Request("failed-jobs", tuple(chosen))
    why = f"one job an attempt, as {others[0]} failed by itself: after the attempt of {first.name}"
    return Request("job", (first,), tuple(chosen[1:]), why, stay)
