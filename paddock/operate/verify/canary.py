"""One run of a workflow on the fleet's runners, started and watched through GitHub's API."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from paddock.console.output import BadFlag
from paddock.errors import one_line
from paddock.fleet import Fleet
from paddock.operate.snapshot.model import Snapshot, moment
from paddock.operate.sources.github import GitHubReader
from paddock.operate.sources.unavailable import Unavailable
from paddock.operate.verify.phases import ColdStart, budgets, phases
from paddock.operate.verify.report import ColdPart, Proof
from paddock.operate.why.admission import read_all
from paddock.operate.why.links.queue import refusal
from paddock.operate.why.subject import SET_LABEL
from paddock.runbooks import runbooks

_FORM = re.compile(r"([\w.-]+)/([\w.-]+)/([\w.-]+\.ya?ml)(?:@([\w./-]+))?")
_CLOCKS_APART = timedelta(seconds=30)
"""How far GitHub's clock and this machine's may be apart."""
_LOOK = 10
"""Readings of the run from one snapshot of the cluster to the next, while a job runs."""
_CLEANING_SECONDS = 30.0


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
    dispatched: datetime | None = field(default=None, init=False)
    """When a run was asked for; None where none was, and after its end."""
    running: int | None = field(default=None, init=False)
    earlier: frozenset[int] = field(default=frozenset(), init=False)
    """Runs that were there before."""

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

    @property
    def _workflow(self) -> str:
        return f"{self._place}/workflows/{self.file}"

    def run(self, title: str, fleet: Fleet, read: Callable[[], Snapshot], patience: float, poll: float) -> Proof:
        """Start a run, wait for its end, and return the step. `read` takes a snapshot. Raises NoCanary."""
        try:
            return self._run(title, fleet, read, patience, poll)
        except NoCanary:
            raise
        except Unavailable as error:
            raise NoCanary(str(error), error.fix or "the App, or the token, needs Actions: write") from None

    def _run(self, title: str, fleet: Fleet, read: Callable[[], Snapshot], patience: float, poll: float) -> Proof:
        if refused := self._refused(title, fleet):
            return refused
        self._dispatch()
        deadline, turn = time.monotonic() + patience, 0
        seen: dict[int, ColdStart] = {}
        while time.monotonic() < deadline:
            self._discover()
            if self.running is not None:
                run = self.github.read(f"{self._place}/runs/{self.running}").body
                jobs = self._jobs()
                fresh = [job for job in jobs if job.get("runner_name") and int(job["id"]) not in seen]
                if fresh or (turn % _LOOK == 0 and any(job.get("status") == "in_progress" for job in jobs)):
                    seen |= observed(read(), jobs, seen)
                if run["status"] == "completed":
                    self.dispatched = None
                    return self._ended(title, fleet, run, jobs, seen)
                turn += 1
            time.sleep(poll)
        state = "was not started" if self.running is None else "has not ended"
        raise NoCanary(f"{self.name} {state} after {patience:.0f} s", f"./inv why, and the runs of {self.name}")

    def _refused(self, title: str, fleet: Fleet) -> Proof | None:
        """Return the step where no group of the fleet would give the workflow a runner: it would wait for nothing."""
        repository = f"{self.owner}/{self.repository}"
        files = [f"{repository}/.github/workflows/{self.file}"]
        try:
            found = read_all(self.github, fleet, repository, lambda: files)
        except Unavailable:  # the run itself shows whether it gets a runner
            return None
        if not found or any(not one.refused for one in found):
            return None
        of_job = {"repository": repository, "workflow": files[0]}
        outcome = refusal(fleet, self.name, {**asdict(found[0]), **of_job})
        book = runbooks()[outcome.runbook]
        fix = book.fix_for(outcome.names)
        return Proof(name=title, state="fail", message=f"{book.title}: {outcome.evidence}", fix=fix)

    def _dispatch(self) -> None:
        self.earlier = frozenset(int(run["id"]) for run in self._runs())
        self.dispatched = datetime.now(UTC)  # before it is sent: an interrupt may come between
        self.github.ask("POST", f"{self._workflow}/dispatches", {"ref": self.ref})

    def _discover(self) -> None:
        """Find the run that was asked for: GitHub's answer to a dispatch does not name it."""
        if self.running is None and self.dispatched is not None:
            since = self.dispatched - _CLOCKS_APART
            new = [
                run
                for run in self._runs()
                if int(run["id"]) not in self.earlier and (moment(run["created_at"]) or since) >= since
            ]
            self.running = int(new[0]["id"]) if new else None

    def _runs(self) -> list[dict[str, Any]]:
        path = f"{self._workflow}/runs?event=workflow_dispatch&per_page=20"
        return list(self.github.read(path).body["workflow_runs"])

    def _jobs(self) -> list[dict[str, Any]]:
        return list(self.github.read(f"{self._place}/runs/{self.running}/jobs?per_page=100").body["jobs"])

    def _ended(
        self,
        title: str,
        fleet: Fleet,
        run: Mapping[str, Any],
        jobs: list[dict[str, Any]],
        seen: Mapping[int, ColdStart],
    ) -> Proof:
        conclusion, label = one_line(str(run.get("conclusion"))), f"run {run['id']} of {self.name}"
        own = [job for job in jobs if runner_key(fleet, job, seen.get(int(job["id"])))]
        if not own:
            where = ", ".join(sorted({str(job.get("runner_name") or "no runner") for job in jobs})) or "no runner"
            return Proof(
                name=title,
                state="fail",
                message=f"{label}: {conclusion}, on {one_line(where)}: that is not a runner of this fleet",
                fix=f"runs-on of {self.file}: labels of a scale set, such as {_labels(fleet)}",
            )
        parts = self._phases(fleet, run, own[0], seen)
        late = [f"{p.name} took {p.seconds:.0f} s of {p.budget_seconds:.0f} s" for p in parts if p.exceeded]
        bad = [f"{job['name']} {job.get('conclusion')}" for job in jobs if job.get("conclusion") != "success"]
        detail = f", {one_line(', '.join(map(str, bad)))}" if bad else f", too slow: {late[0]}" if late else ""
        good = conclusion == "success" and not late
        message = f"{label}: {conclusion} on {own[0].get('runner_name')}{detail}"
        fix = "" if good else str(run.get("html_url", ""))
        return Proof(name=title, state="pass" if good else "fail", message=message, fix=fix, phases=parts)

    @staticmethod
    def _phases(
        fleet: Fleet, run: Mapping[str, Any], job: Mapping[str, Any], seen: Mapping[int, ColdStart]
    ) -> tuple[ColdPart, ...]:
        record = replace(seen.get(int(job["id"]), ColdStart(None)), run=run, job=job)
        key = runner_key(fleet, job, record)
        return phases(record, budgets(fleet, fleet.pools[fleet.runners[key].pool]))

    def clean(self, seconds: float = _CLEANING_SECONDS, poll: float = 1.0) -> list[str]:
        """Cancel a run that was asked for and is in progress, and wait for its end; return what is left."""
        if self.dispatched is None:
            return []
        deadline = time.monotonic() + seconds
        detail = f"a run of {self.name} may still start: it was requested and not seen within {seconds:.0f} s"
        while time.monotonic() < deadline:
            try:
                self._discover()
                if self.running is not None:
                    detail = f"run {self.running} of {self.name} was cancelled, and has not ended"
                    if self.github.read(f"{self._place}/runs/{self.running}").body["status"] == "completed":
                        self.dispatched = None
                        return []
                    self.github.ask("POST", f"{self._place}/runs/{self.running}/cancel")
            except Unavailable as error:
                detail = f"run {self.running or ''} of {self.name}: {error}"
            time.sleep(poll)
        return [detail]


def observed(snapshot: Snapshot, jobs: list[dict[str, Any]], before: Mapping[int, ColdStart]) -> dict[int, ColdStart]:
    """Return what the cluster has of each job that has a runner: both are gone soon after the job."""
    records = {}
    for job in jobs:
        name = job.get("runner_name")
        runner = next((item for item in snapshot.runners if name and item["metadata"]["name"] == name), None)
        pod = next((item for item in snapshot.pods if name and item["metadata"]["name"] == name), None)
        if runner is None and pod is None:
            continue
        where = (pod or {}).get("spec", {}).get("nodeName")
        node = next((item for item in snapshot.nodes if where and item["metadata"]["name"] == where), None)
        old = before.get(int(job["id"]), ColdStart(None))
        events = {
            str(event["metadata"].get("uid") or id(event)): event
            for event in (*old.events, *(snapshot.events_of(pod) if pod else ()))
        }
        records[int(job["id"])] = ColdStart(
            pod=pod or old.pod,
            node=node or old.node,
            events=tuple(events.values()),
            activities=(*snapshot.activities,) or old.activities,
            runner=runner or old.runner,
        )
    return records


def runner_key(fleet: Fleet, job: Mapping[str, Any], record: ColdStart | None) -> str:
    """Return the key of the fleet's runner that a job ran on; empty where it is not one of the fleet's."""
    item = (record.runner or record.pod) if record else None
    of_set = ((item or {}).get("metadata", {}).get("labels") or {}).get(SET_LABEL)
    name = str(job.get("runner_name") or "")
    for key, runner in fleet.runners.items():
        # ARC names a runner after its set, where the object with the label is gone already.
        named = re.fullmatch(rf"{re.escape(runner.scale_set)}-\w+-runner-\w+", name)
        if of_set == runner.scale_set or (not of_set and named):
            return key
    return ""


def _labels(fleet: Fleet) -> str:
    runner = next(iter(fleet.runners.values()), None)
    return f"[{', '.join(runner.effective_labels)}]" if runner else "its own"
