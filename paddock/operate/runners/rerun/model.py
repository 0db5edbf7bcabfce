"""A job, the pods and nodes that it had, and what is decided of it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from paddock.operate.snapshot.model import moment
from paddock.operate.sources.unavailable import Unavailable


@dataclass(frozen=True, slots=True)
class FailedStep:
    """A step that failed."""

    name: str
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job of GitHub Actions in the latest attempt of its run. `repository` is `owner/name`."""

    repository: str
    run: int
    id: int
    name: str
    workflow: str
    url: str
    check_run: int
    runner: str
    """Name of the runner, which is that of its EphemeralRunner and of its pod; empty where none had it."""
    attempt: int
    status: str
    conclusion: str
    started: datetime | None
    ended: datetime | None
    failed_steps: tuple[FailedStep, ...]
    run_over: bool
    """False while the run is in progress: GitHub then runs none of its jobs again."""


def job_of(repository: str, run: Mapping[str, Any], job: Mapping[str, Any]) -> Job:
    """Return a job as GitHub's REST API has it. Raises Unavailable for another form."""
    try:
        number = int(job["id"])
        check_run = str(job.get("check_run_url") or "").rpartition("/")[2]
        steps = [step for step in job.get("steps") or [] if step.get("conclusion") == "failure"]
        return Job(
            repository=repository,
            run=int(run["id"]),
            id=number,
            name=str(job.get("name") or number),
            workflow=str(job.get("workflow_name") or run.get("name") or ""),
            url=str(job.get("html_url") or ""),
            check_run=int(check_run) if check_run.isdecimal() else number,
            runner=str(job.get("runner_name") or ""),
            # Jobs that were not run again are carried over: the run's number counts for all.
            attempt=max(int(job.get("run_attempt") or 1), int(run.get("run_attempt") or 1)),
            status=str(job.get("status") or ""),
            conclusion=str(job.get("conclusion") or ""),
            started=moment(job.get("started_at")),
            ended=moment(job.get("completed_at")),
            failed_steps=tuple(FailedStep(str(step.get("name")), moment(step.get("completed_at"))) for step in steps),
            run_over=run.get("status") == "completed",
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"GitHub's answer about a job of {repository} has another form: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod that did a job's work, and its node."""

    pod: str
    """`namespace/name`."""
    node: str
    since: datetime
    uid: str = ""
    killed: datetime | None = None
    """When the kubelet was told to end it."""
    instance: str = ""
    """EC2 instance of the node, where the node was still there to say it."""
    pool: str = ""
    """Pool of the node; empty where the pod asks for none of the fleet's pools."""


NodeState = Literal["taken-back", "kept", "unknown"]


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """Verdict on a placement's node: taken back by AWS, kept, or unknown."""

    state: NodeState
    reason: str
    noticed: datetime | None = None
    """First sign that it would be taken back, as far as a source names a time."""
    instance: str = ""
    fix: str = ""
    permission: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Nodes of a job, each placement with its verdict. `unknown`: why there is no placement."""

    placed: Sequence[tuple[Placement, NodeVerdict]] = ()
    unknown: str = ""
    fix: str = ""
    permission: str = ""


@dataclass(frozen=True, slots=True)
class Statements:
    """Words of GitHub on a job's end: annotations, and errors in its log. `unknown`: why they are not known."""

    texts: tuple[str, ...] = ()
    unknown: str = ""
    fix: str = ""
    permission: str = ""
    no_log: str = ""
    """Why the log could not be read."""


State = Literal["rerun", "left", "unknown", "ask"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on a job. `ask`: GitHub's words on its end decide."""

    state: State
    why: str
    fix: str = ""
    permission: str = ""
    node: str = ""
    instance: str = ""
    lost: bool = False
    """True where the node was taken back under the job, whether it is run again or not."""
