"""One run of a workflow on the fleet's runners, started and watched through GitHub's API."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from paddock.errors import one_line
from paddock.operate.snapshot.model import moment
from paddock.operate.sources.github import GitHubReader
from paddock.operate.sources.unavailable import Unavailable
from paddock.operate.verify.report import Phase, Step
from paddock.terminal import BadFlag

_FORM = re.compile(r"([\w.-]+)/([\w.-]+)/([\w.-]+\.ya?ml)(?:@([\w./-]+))?")
BUDGETS: Mapping[str, float] = {"assigned and online": 900.0, "first step": 60.0}
"""Seconds from the queue to a runner, and from there to the first step: choices of ours."""


class NoCanary(Unavailable):
    """The workflow cannot be started or followed."""


@dataclass
class Canary:
    """A workflow with `on: workflow_dispatch`."""

    github: GitHubReader
    owner: str
    repository: str
    file: str
    ref: str
    running: int | None = field(default=None, init=False)

    @classmethod
    def parse(cls, text: str, github: GitHubReader) -> Canary:
        """Return the workflow that a flag names. Raises BadFlag."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise BadFlag(
                f"--canary {text} names no workflow\n    expected: owner/repository/file.yml, with @branch if not main"
                "\n    fix: --canary acme/app/gpu-canary.yml@main"
            )
        owner, repository, file, ref = match.groups()
        return cls(github, owner, repository, file, ref or "main")

    @property
    def name(self) -> str:
        return f"{self.owner}/{self.repository}/{self.file}@{self.ref}"

    @property
    def _place(self) -> str:
        return f"/repos/{self.owner}/{self.repository}/actions"

    def run(self, title: str, patience: float, poll: float) -> Step:
        """Start a run, wait for its end, and return the step. Raises NoCanary."""
        try:
            return self._run(title, patience, poll)
        except NoCanary:
            raise
        except Unavailable as error:
            raise NoCanary(str(error), error.fix or "the App, or the token, needs Actions: write") from None

    def _run(self, title: str, patience: float, poll: float) -> Step:
        began = datetime.now(UTC) - timedelta(seconds=30)  # GitHub's clock
        path = f"{self._place}/workflows/{self.file}"
        before = {run["id"] for run in self._runs(path)}
        self.github.ask("POST", f"{path}/dispatches", {"ref": self.ref})
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if self.running is None:
                new = [
                    r for r in self._runs(path) if r["id"] not in before and (moment(r["created_at"]) or began) >= began
                ]
                self.running = int(new[0]["id"]) if new else None
            else:
                run = self.github.read(f"{self._place}/runs/{self.running}").body
                if run["status"] == "completed":
                    return self._ended(title, run)
            time.sleep(poll)
        state = "was not started" if self.running is None else "has not ended"
        raise NoCanary(f"{self.name} {state} after {patience:.0f} s", f"./inv why, and the runs of {self.name}")

    def _runs(self, path: str) -> list[dict[str, Any]]:
        return list(self.github.read(f"{path}/runs?event=workflow_dispatch&per_page=20").body["workflow_runs"])

    def _ended(self, title: str, run: Mapping[str, Any]) -> Step:
        number, self.running = int(run["id"]), None
        jobs = self.github.read(f"{self._place}/runs/{number}/jobs").body["jobs"]
        parts = _phases(jobs[0]) if jobs else ()
        late = [f"{p.name} took {p.seconds:.0f} s of {p.budget_seconds:.0f} s" for p in parts if p.exceeded]
        conclusion = one_line(str(run.get("conclusion")))
        message = f"run {number} of {self.name}: {conclusion}{f', too slowly: {late[0]}' if late else ''}"
        good = conclusion == "success" and not late
        fix = "" if good else str(run.get("html_url", ""))
        return Step(name=title, state="pass" if good else "fail", message=message, fix=fix, phases=parts)

    def clean(self) -> list[str]:
        """Cancel a run that goes on; return what is left."""
        if self.running is None:
            return []
        try:
            self.github.ask("POST", f"{self._place}/runs/{self.running}/cancel")
        except Unavailable as error:
            return [f"run {self.running} of {self.name}: {error}"]
        return []


def _phases(job: Mapping[str, Any]) -> tuple[Phase, ...]:
    created, started = moment(job.get("created_at")), moment(job.get("started_at"))
    first = next((moment(step.get("started_at")) for step in job.get("steps") or [] if step.get("started_at")), None)
    spans = {"assigned and online": (created, started), "first step": (started, first)}
    return tuple(
        Phase(
            name=name,
            seconds=max((end - begin).total_seconds(), 0.0) if begin and end else None,
            budget_seconds=BUDGETS[name],
        )
        for name, (begin, end) in spans.items()
    )
