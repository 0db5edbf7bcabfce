"""Runs and jobs of workflows over GitHub's REST API, and the one change that is made there: a job is run again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from paddock.operate.sources.github import GitHubReader, RateLimited

_RESERVE = 0.05
"""Part of the hourly requests that is left to others with the same credential."""
_LOG = 64 * 1024
_MOST_MESSAGES = 100


class Actions:
    """Asks with one credential, and stops before its hourly requests are used up."""

    def __init__(self, reader: GitHubReader) -> None:
        self.reader = reader

    def repositories(self) -> list[str]:
        """Return the repositories of an App's installation that are in use. Raises Unavailable."""
        self._check()
        listing = self.reader.pages("/installation/repositories", "repositories")
        return [
            str(repository["full_name"])
            for repository in listing
            if not repository.get("archived") and not repository.get("disabled")
        ]

    def runs(self, repository: str, since: datetime) -> list[dict[str, Any]]:
        """Return the runs of a repository that were created since then. Raises Unavailable."""
        self._check()
        created = quote(f">={since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", safe="")
        return self.reader.pages(f"{_place(repository)}/runs", "workflow_runs", f"created={created}&")

    def run(self, repository: str, number: int) -> dict[str, Any]:
        """Return a run as it is now. Raises Unavailable, NotFound."""
        self._check()
        return dict(self.reader.read(f"{_place(repository)}/runs/{number}").body)

    def jobs(self, repository: str, run: int) -> list[dict[str, Any]]:
        """Return the jobs of a run's latest attempt. Raises Unavailable, NotFound."""
        self._check()
        return self.reader.pages(f"{_place(repository)}/runs/{run}/jobs", "jobs", "filter=latest&")

    def messages(self, repository: str, check_run: int) -> list[str]:
        """Return what GitHub and the runner noted on a job: its annotations. Raises Unavailable, NotFound."""
        self._check()
        path = f"/repos/{repository}/check-runs/{check_run}/annotations?per_page={_MOST_MESSAGES}"
        return [str(annotation.get("message") or "") for annotation in self.reader.read(path).body or []]

    def log_end(self, repository: str, job: int) -> str:
        """Return the end of a job's log. Raises Unavailable, NotFound: a runner that vanished has sent none."""
        self._check()
        return self.reader.end_of_text(f"{_place(repository)}/jobs/{job}/logs", _LOG)

    def rerun_job(self, repository: str, job: int) -> None:
        """Run one job again, with those that need it. Raises Unavailable."""
        self.reader.ask("POST", f"{_place(repository)}/jobs/{job}/rerun", {}, attempts=1)

    def rerun_failed_jobs(self, repository: str, run: int) -> None:
        """Run every failed job of a run again, with those that need them. Raises Unavailable."""
        self.reader.ask("POST", f"{_place(repository)}/runs/{run}/rerun-failed-jobs", {}, attempts=1)

    def _check(self) -> None:
        """Raise RateLimited while only the reserve is left."""
        left, limit, reset = (self.reader.rate.get(f"x-ratelimit-{key}", "") for key in ("remaining", "limit", "reset"))
        if left.isdecimal() and limit.isdecimal() and int(left) < max(int(int(limit) * _RESERVE), 1):
            now = datetime.now(UTC).timestamp()
            wait = max(float(reset) - now, 1.0) if reset.isdecimal() else 60.0
            if wait > 1.0:
                raise RateLimited(f"{left} of {limit} requests of this hour are left at GitHub", wait)


def _place(repository: str) -> str:
    return f"/repos/{repository}/actions"
