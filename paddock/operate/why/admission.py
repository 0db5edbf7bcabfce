"""Admission of a job to the runner groups of the fleet: GitHub queues one that they refuse, and says nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict
from datetime import UTC, datetime

from paddock.fleet import Fleet
from paddock.operate.inventory.admission import Admission, group_of, read_admissions
from paddock.operate.snapshot.model import NOT_READ, Reading, Snapshot
from paddock.operate.sources.github import GitHubReader
from paddock.operate.sources.unavailable import Unavailable


def admissions(snapshot: Snapshot, github: GitHubReader | None, job: str) -> Reading:
    """Return whether the fleet's groups admit a queued job, `owner/repository/ID`; not read for any other job."""
    queued = next((item for item in snapshot.jobs if item.get("status") == "queued"), None)
    if github is None or not job or queued is None:
        return NOT_READ
    repository, files = job.rpartition("/")[0], list[str]()

    def workflows() -> list[str]:
        run = github.read(f"/repos/{repository}/actions/runs/{queued['run_id']}").body
        used = [str(workflow["path"]) for workflow in run.get("referenced_workflows") or []]
        files[:] = [f"{repository}/{run['path']}", *used]
        return files

    try:
        found = read_all(github, snapshot.fleet, repository, workflows)
    except Unavailable as error:
        return Reading(reason=str(error), fix=error.fix, permission=error.permission, at=datetime.now(UTC))
    of_job = {"repository": repository, "workflow": next(iter(files), "")}
    return Reading(tuple({**asdict(one), **of_job} for one in found), at=datetime.now(UTC))


def read_all(
    github: GitHubReader, fleet: Fleet, repository: str, workflows: Callable[[], Collection[str]]
) -> tuple[Admission, ...]:
    """Return whether each group of the fleet admits a repository's job. Raises Unavailable."""
    names = dict.fromkeys(group_of(fleet, runner) for runner in fleet.runners.values())
    return read_admissions(github, fleet.github, names, repository, workflows)
