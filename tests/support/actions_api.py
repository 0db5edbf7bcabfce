"""A stand-in for GitHub's REST API of workflow runs, on loopback, in the form of GitHub's documentation.

It pages, counts requests against a limit, refuses a run again while it goes on, and begins an attempt when asked to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.http_server import Handler, serving

Object = dict[str, Any]
TOKEN = "ghp_0123456789abcdefghij"
PERSON = "The run was canceled by @octocat."
LOST = "The self-hosted runner: NAME lost communication with the server. Verify the machine is running."
SHUT = "The runner has received a shutdown signal. This can happen when the runner service is stopped."
CANCELED = "The operation was canceled."
EXIT = "Process completed with exit code 1."


def stamp(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


@dataclass
class ActionsApi:
    """State of the stand-in. `url` is then its address."""

    at: datetime
    runs: dict[str, list[Object]] = field(default_factory=dict)
    jobs: dict[int, list[Object]] = field(default_factory=dict)
    """Jobs of a run's latest attempt."""
    notes: dict[int, list[str]] = field(default_factory=dict)
    """Annotations of a job."""
    logs: dict[int, str] = field(default_factory=dict)
    repositories: list[Object] | None = None
    """Repositories of the App's installation; None refuses, as for a personal token."""
    refuses: dict[str, tuple[int, Object]] = field(default_factory=dict)
    """Answers by a pattern of `METHOD path`."""
    remaining: int = 4999
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def run(self, number: int, repository: str = "acme/app", **changes: Any) -> Object:
        """Add a run, a completed one that failed."""
        run = {
            "id": number,
            "name": "ci",
            "run_attempt": 1,
            "status": "completed",
            "conclusion": "failure",
            "created_at": stamp(self.at - timedelta(minutes=50)),
            **changes,
        }
        self.runs.setdefault(repository, []).append(run)
        return run

    def job(self, run: int, number: int, *notes: str, **changes: Any) -> Object:
        """Add a job to a run: one that ended ten minutes ago, after half an hour."""
        job = {
            "id": number,
            "run_id": run,
            "run_attempt": 1,
            "name": f"job-{number}",
            "workflow_name": "ci",
            "html_url": f"https://github.com/acme/app/actions/runs/{run}/job/{number}",
            "check_run_url": f"{self.url}/api/v3/repos/acme/app/check-runs/{number}",
            "status": "completed",
            "conclusion": "failure",
            "started_at": stamp(self.at - timedelta(minutes=40)),
            "completed_at": stamp(self.at - timedelta(minutes=10)),
            "runner_name": "gpu-abc12-runner-x1y2z",
            "labels": ["self-hosted", "gpu"],
            "steps": [{"name": "Train", "conclusion": None, "completed_at": None}],
            **changes,
        }
        self.jobs.setdefault(run, []).append(job)
        self.notes[number] = list(notes)
        return job

    @property
    def posted(self) -> list[str]:
        return [request.removeprefix("POST ") for request in self.requests if request.startswith("POST ")]

    def answer(self, method: str, target: str, authorization: str) -> tuple[int, Any, Mapping[str, str]]:
        self.requests.append(f"{method} {urlsplit(target).path}")
        self.remaining -= 1
        limits = {"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": str(self.remaining)}
        limits["X-RateLimit-Reset"] = str(int(datetime.now(UTC).timestamp()) + 600)
        if target.startswith("/blob/"):
            assert not authorization, "a credential went to where the log is kept"
            return 200, self.logs[int(target.rpartition("/")[2])].encode(), {}
        if authorization != f"Bearer {TOKEN}":
            return 401, {"message": "Bad credentials"}, limits
        path, query = urlsplit(target).path.removeprefix("/api/v3"), dict(parse_qsl(urlsplit(target).query))
        for pattern, (status, body) in self.refuses.items():
            if re.search(pattern, f"{method} {path}"):
                return status, body, limits
        status, body, headers = self._of(method, path, query)
        return status, body, {**limits, **headers}

    def _of(self, method: str, path: str, query: Mapping[str, str]) -> tuple[int, Any, Mapping[str, str]]:
        if path == "/installation/repositories":
            if self.repositories is None:
                return 403, {"message": "You must authenticate with an installation access token"}, {}
            return 200, _page("repositories", self.repositories, query), {}
        if match := re.fullmatch(r"/repos/[^/]+/[^/]+/check-runs/(\d+)/annotations", path):
            return 200, [{"message": text} for text in self.notes[int(match[1])]], {}
        match = re.fullmatch(r"/repos/([^/]+/[^/]+)/actions/(runs|jobs)(?:/(\d+))?(?:/([a-z-]+))?", path)
        if match is None:
            return 404, {"message": "Not Found"}, {}
        repository, kind, number, action = match.groups()
        runs = {run["id"]: run for run in self.runs.get(repository, [])}
        if kind == "runs" and number is None:
            created = query["created"].removeprefix(">=")
            return 200, _page("workflow_runs", [r for r in runs.values() if r["created_at"] >= created], query), {}
        if kind == "jobs" and action == "logs":
            if int(number) not in self.logs:
                return 404, {"message": "Not Found"}, {}
            return 302, "", {"Location": f"{self.url}/blob/{number}"}
        of_run = int(number) if kind == "runs" else self._run_of(int(number))
        if of_run not in runs:
            return 404, {"message": "Not Found"}, {}
        if method == "POST":
            return self._again(runs[of_run])
        if kind == "runs" and action == "jobs":
            return 200, _page("jobs", self.jobs.get(of_run, []), query), {}
        return 200, runs[of_run], {}

    def _run_of(self, job: int) -> int:
        return next((run for run, jobs in self.jobs.items() if job in {one["id"] for one in jobs}), 0)

    def _again(self, run: Object) -> tuple[int, Any, Mapping[str, str]]:
        if run["status"] != "completed":
            return 403, {"message": "The workflow run containing this job is already running"}, {}
        run |= {"status": "queued", "conclusion": None, "run_attempt": run["run_attempt"] + 1}
        return 201, {}, {}


def _page(key: str, items: list[Object], query: Mapping[str, str]) -> Object:
    size, page = int(query.get("per_page", "30")), int(query.get("page", "1"))
    return {"total_count": len(items), key: items[size * (page - 1) : size * page]}


@contextmanager
def serve(api: ActionsApi) -> Iterator[ActionsApi]:
    """Serve it as an Enterprise Server."""

    class Requests(Handler):
        def do_GET(self) -> None:
            self.body()
            self.send(*api.answer(self.command, self.path, self.headers.get("Authorization", "")))

        do_POST = do_GET

    with serving(Requests) as api.url:
        yield api
