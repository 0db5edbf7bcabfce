"""State of the stand-in for GitHub: jobs, scale sets, runners and sessions, kept in one file."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paddock.lab.errors import LabError

Object = dict[str, Any]

QUEUED, ACQUIRED, RUNNING, COMPLETED = "queued", "acquired", "running", "completed"
LONGEST_JOB_SECONDS = 24 * 3600.0


class Refused(Exception):
    """An answer other than 2xx: its status, the service's name for the error, and a message."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        self.status, self.kind = status, kind
        super().__init__(message)


@dataclass(slots=True)
class Job:
    """One job of a workflow."""

    id: int
    name: str
    repository: str
    labels: tuple[str, ...]
    seconds: float
    """Duration."""
    state: str = QUEUED
    result: str = ""
    """succeeded, failed or canceled, once it is completed."""
    scale_set: int | None = None
    runner: str = ""
    history: list[tuple[str, float]] = field(default_factory=list)
    """States, each with its start in seconds since 1970."""
    run: int = 0
    """Run of a workflow that it is part of; 0 for one of its own."""
    attempt: int = 1
    fails: bool = False
    """True for a job whose own step fails."""
    lost: bool = False
    """True where its runner vanished under it."""

    @property
    def run_id(self) -> int:
        return self.run or self.id

    def enter(self, state: str, now: float) -> None:
        self.state = state
        self.history.append((state, now))


@dataclass(slots=True)
class ScaleSet:
    """A runner scale set, with the queue of its messages."""

    id: int
    name: str
    group: str
    labels: tuple[str, ...]
    created: float
    settings: Object = field(default_factory=dict)
    events: list[Object] = field(default_factory=list)
    """Events that are in no message yet."""
    messages: list[tuple[int, list[Object]]] = field(default_factory=list)
    """Messages without acknowledgement."""
    last_message: int = 0

    def serves(self, labels: Collection[str]) -> bool:
        """True where the set has all labels of a job; case does not count."""
        own = {label.casefold() for label in (*self.labels, self.name)}
        return bool(labels) and all(label.casefold() in own for label in labels)


@dataclass(slots=True)
class Runner:
    """A runner that was registered for one job."""

    id: int
    name: str
    scale_set: int
    registered: float
    online: float | None = None
    job: int | None = None
    pod: Object = field(default_factory=dict)
    """Facts of its pod: a job's timeline needs them after the pod is deleted."""


@dataclass(slots=True)
class Session:
    """A listener's claim on the messages of one scale set."""

    id: str
    owner: str
    scale_set: int
    last_poll: float = 0.0
    """Monotonic seconds."""
    offers: dict[int, float] = field(default_factory=dict)
    """Jobs that were offered, and when."""


@dataclass(slots=True)
class ServiceState:
    """The whole state."""

    jobs: dict[int, Job] = field(default_factory=dict)
    sets: dict[int, ScaleSet] = field(default_factory=dict)
    runners: dict[str, Runner] = field(default_factory=dict)
    former: dict[str, Runner] = field(default_factory=dict)
    """Runners that have ended."""
    sessions: dict[str, Session] = field(default_factory=dict)
    groups: list[str] = field(default_factory=lambda: ["Default"])
    last_id: int = 0

    def new_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def document(self) -> Object:
        """Return the state as JSON, with sessions that count as fresh when it is read again."""
        sessions = {
            session.id: {"id": session.id, "owner": session.owner, "scale_set": session.scale_set}
            for session in self.sessions.values()
        }
        return {**asdict(self), "sessions": sessions, "version": 1}


def read(file: Path) -> ServiceState:
    """Return the state in a file, an empty one without a file. Raises LabError for an invalid file."""
    try:
        return _state(json.loads(file.read_text(encoding="utf-8")), time.monotonic())
    except FileNotFoundError:
        return ServiceState()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{file} is no state of the stand-in for GitHub: {error}\n    fix: delete the file") from None


def _state(document: Mapping[str, Any], now: float) -> ServiceState:
    """Reverse `ServiceState.document`. `now`: monotonic seconds. Raises KeyError, TypeError and ValueError."""
    if document["version"] != 1:
        raise ValueError(f"version {document['version']}, expected 1")
    jobs = [
        Job(**{**job, "labels": tuple(job["labels"]), "history": [tuple(step) for step in job["history"]]})
        for job in document["jobs"].values()
    ]
    sets = [
        ScaleSet(
            **{
                **scale_set,
                "labels": tuple(scale_set["labels"]),
                "messages": [tuple(message) for message in scale_set["messages"]],
            }
        )
        for scale_set in document["sets"].values()
    ]
    return ServiceState(
        {job.id: job for job in jobs},
        {scale_set.id: scale_set for scale_set in sets},
        {name: Runner(**runner) for name, runner in document["runners"].items()},
        {name: Runner(**runner) for name, runner in document["former"].items()},
        {name: Session(**session, last_poll=now) for name, session in document["sessions"].items()},
        list(document["groups"]),
        int(document["last_id"]),
    )


def parse_job_order(order: Mapping[str, Any], number: int) -> Job:
    """Return a pushed job. Raises Refused."""

    def invalid(problem: str) -> Refused:
        return Refused(400, "BadRequest", f"a job {problem}")

    keys = ("labels", "seconds", "name", "repository", "run", "fails")
    if unknown := sorted(set(order) - set(keys)):
        raise invalid(f"has no {', '.join(unknown)}; expected: {', '.join(keys)}")
    labels = order.get("labels")
    if (
        not isinstance(labels, list)
        or not labels
        or not all(isinstance(label, str) and label.strip() for label in labels)
    ):
        raise invalid("needs labels: a list of at least one text, its runs-on")
    seconds = order.get("seconds", 1.0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise invalid(f"cannot work for {seconds!r} seconds")
    if not 0 < seconds <= LONGEST_JOB_SECONDS:
        raise invalid(f"cannot work for {seconds} seconds; expected: more than 0, at most {LONGEST_JOB_SECONDS:.0f}")
    name, repository = str(order.get("name") or "job"), str(order.get("repository") or "acme/lab")
    run, fails = int(order.get("run") or 0), bool(order.get("fails"))
    return Job(number, name, repository, tuple(labels), float(seconds), run=run, fails=fails)
