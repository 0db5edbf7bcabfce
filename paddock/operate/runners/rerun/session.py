"""One pass over a fleet's jobs: jobs of GitHub, evidence, a decision for each, and the requests that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from paddock.fleet import Fleet
from paddock.operate.runners.rerun import plan
from paddock.operate.runners.rerun.decide import decide, names_an_end
from paddock.operate.runners.rerun.model import Decision, Job, Statements, job_of
from paddock.operate.runners.rerun.placement import Memory, evidence, is_runner_of
from paddock.operate.runners.rerun.report import JobLine, State, Unread
from paddock.operate.snapshot.model import Snapshot, moment
from paddock.operate.sources.aws_instances import Instances
from paddock.operate.sources.github import RateLimited
from paddock.operate.sources.github_actions import Actions
from paddock.operate.sources.unavailable import NotFound, Unavailable

PARTS = ("nodes", "pods", "events", "killings", "runners")
_REACH = timedelta(hours=24)
"""How long before `since` a run may have been created. Older ones are found by the runners that have their jobs."""
_EARLIER = timedelta(hours=1)
_LISTED = ("failure", "cancelled")


@dataclass
class Session:
    """State that one pass has, and the next one continues with."""

    fleet: Fleet
    actions: Actions
    instances: Callable[[Snapshot, datetime], Instances]
    """Reads EC2's instances, when a job needs them."""
    memory: Memory = field(default_factory=Memory)
    progress: Callable[[str], None] = lambda text: None
    unread: list[Unread] = field(default_factory=list, init=False)
    lost: list[tuple[Job, Decision]] = field(default_factory=list, init=False)
    """Jobs whose node was taken back, of the last pass."""
    interrupted: bool = field(default=False, init=False)
    """True where Ctrl-C ended the last pass."""
    _since: datetime = field(default=datetime.min.replace(tzinfo=UTC), init=False)
    _known: Instances | None = field(default=None, init=False)

    def run(self, snapshot: Snapshot, repositories: Sequence[str], since: datetime, *, change: bool) -> list[JobLine]:
        """Return a line for each job that failed or was cancelled since then. Without `change` nothing is run again."""
        self.unread, self.lost = [], []
        self.memory.learn(snapshot)
        self._since, self._known, self.interrupted = since, None, False
        lines: list[JobLine] = []
        for repository in repositories:
            try:
                for run in self._runs(repository, since):
                    for line in self._of_run(snapshot, repository, run, change=change):
                        lines.append(line)
            except KeyboardInterrupt:
                self.interrupted = True
                break
            except RateLimited as error:
                rest = repositories[repositories.index(repository) :]
                self._miss(", ".join(rest[:3]) + (" and more" if len(rest) > 3 else ""), error)
                break
            except Unavailable as error:
                self._miss(repository, error)
        return lines

    def _miss(self, part: str, error: Unavailable) -> None:
        self.unread.append(Unread(part=part, reason=str(error), fix=error.fix, permission=error.permission))

    def _runs(self, repository: str, since: datetime) -> Iterator[dict[str, object]]:
        """Yield the runs that may have such a job."""
        self.progress(f"reads runs of {repository}")
        there: set[int] = set()
        for run in self.actions.runs(repository, since - _REACH):
            there.add(int(run["id"]))
            if run.get("status") != "completed" or run.get("conclusion") in _LISTED:
                yield run
        for name, number in sorted(self.memory.runs):
            if name == repository and number not in there:
                try:
                    run = self.actions.run(repository, number)
                except NotFound:
                    self.memory.runs.discard((name, number))
                    continue
                changed = moment(run.get("updated_at"))
                if run.get("status") == "completed" and changed and changed < since:
                    self.memory.runs.discard((name, number))
                else:
                    yield run

    def _of_run(
        self, snapshot: Snapshot, repository: str, run: dict[str, object], *, change: bool
    ) -> Iterator[JobLine]:
        self.progress(f"reads jobs of {repository}, run {run['id']}")
        every = [job_of(repository, run, job) for job in self.actions.jobs(repository, int(str(run["id"])))]
        own = [job for job in every if self._concerns(job)]
        decisions = {job.id: self._decision(snapshot, job) for job in own}
        self.lost += [(job, decisions[job.id]) for job in own if decisions[job.id].lost]
        chosen = [job for job in own if decisions[job.id].state == "rerun"]
        done = self._run_again(chosen, every, change=change) if chosen else {}
        for job in own:
            decision = decisions[job.id]
            state, more, fix = done.get(job.id, (decision.state, "", decision.fix))
            message = f"{decision.why}; {more}" if more else decision.why
            yield _line(job, decision, state, message, fix)  # type: ignore[arg-type]  # "ask" was answered

    def _concerns(self, job: Job) -> bool:
        ours = any(is_runner_of(runner.scale_set, job.runner) for runner in self.fleet.runners.values())
        return ours and job.conclusion in _LISTED and (job.ended is None or job.ended >= self._since)

    def _decision(self, snapshot: Snapshot, job: Job) -> Decision:
        if self._known is None:  # its instance has ended no earlier than its job
            self._known = self.instances(snapshot, self._since - _EARLIER)
        known = evidence(snapshot, job, self.memory, self._known)
        decision = decide(job, known)
        return decide(job, known, self._statements(job)) if decision.state == "ask" else decision

    def _statements(self, job: Job) -> Statements:
        """Return GitHub's annotations of a job, and the errors at the end of its log."""
        try:
            texts = self.actions.messages(job.repository, job.check_run)
        except RateLimited:
            raise
        except Unavailable as error:
            fix = error.fix or "the App, or the token, needs Checks: read"
            return Statements(
                (), f"what GitHub noted on it cannot be read: {error}", fix, error.permission or "checks: read"
            )
        if names_an_end(texts):
            return Statements(tuple(texts))
        try:
            log = self.actions.log_end(job.repository, job.id)
        except NotFound:  # a runner that vanished has sent none
            return Statements(tuple(texts))
        except Unavailable as error:
            return Statements(tuple(texts), no_log=str(error))
        return Statements((*texts, *(line for line in log.splitlines() if "##[error]" in line)))

    def _run_again(
        self, chosen: Sequence[Job], every: Sequence[Job], *, change: bool
    ) -> dict[int, tuple[State, str, str]]:
        """Run jobs of one run again; return state, words and fix by job."""
        request = plan.request(chosen, every)
        done: dict[int, tuple[State, str, str]] = {job.id: ("waits", request.why, _LATER) for job in request.later}
        if request.kind == "none":
            return done
        words = f"attempt {chosen[0].attempt + 1}" + (f"; {request.note}" if request.note else "")
        if not change:
            return done | {job.id: ("planned", f"would be {words}", "") for job in request.jobs}
        state, outcome, fix = self._send(request)
        outcome = f"{outcome}, {words}" if state == "rerun" else outcome
        return done | {job.id: (state, outcome, fix) for job in request.jobs}

    def _send(self, request: plan.Request) -> tuple[State, str, str]:
        job = request.jobs[0]
        try:
            now = self.actions.run(job.repository, job.run)
            if now.get("status") != "completed" or int(now.get("run_attempt") or 1) != job.attempt:
                return "waits", "its run was started again in the meantime", ""
            if request.kind == "job":
                self.actions.rerun_job(job.repository, job.id)
            else:
                self.actions.rerun_failed_jobs(job.repository, job.run)
        except RateLimited as error:
            return "waits", str(error), error.fix
        except Unavailable as error:
            if "already running" in str(error):
                return "waits", "GitHub says that its run is already running", _LATER
            return "failed", f"GitHub refuses: {error}", error.fix or "the App, or the token, needs Actions: write"
        return "rerun", "run again", ""


_LATER = "run this again, or with --watch"


def _line(job: Job, decision: Decision, state: State, message: str, fix: str) -> JobLine:
    return JobLine(
        repository=job.repository,
        run=job.run,
        job=job.id,
        name=job.name,
        workflow=job.workflow,
        url=job.url,
        attempt=job.attempt,
        runner=job.runner,
        state=state,
        message=message,
        fix=fix,
        permission=decision.permission,
        node=decision.node or None,
        instance=decision.instance or None,
    )
