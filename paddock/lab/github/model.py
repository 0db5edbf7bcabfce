"""State of the stand-in for GitHub: jobs, scale sets, runners and sessions, kept in one file."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from paddock.errors import one_line
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
    group_rules: dict[str, Object] = field(default_factory=dict)
    """Fields of groups that somebody has changed, by name in lower case."""
    repositories: dict[str, Object] = field(default_factory=dict)
    """By `owner/name` in lower case."""
    settings: dict[str, Object] = field(default_factory=dict)
    """Settings of Actions that somebody has changed, by their path in the REST API."""
    last_id: int = 0
    version: Literal[1] = 1

    def new_id(self) -> int:
        self.last_id += 1
        return self.last_id


def read(file: Path) -> ServiceState:
    """Return the state in a file, an empty one without a file. Raises LabError for an invalid file."""
    try:
        state: ServiceState = _adapter().validate_json(file.read_bytes())
    except FileNotFoundError:
        return ServiceState()
    except (OSError, ValueError) as error:
        why = one_line(str(error))
        raise LabError(f"{file} is not a state of the stand-in for GitHub: {why}\n    fix: delete the file") from None
    for session in state.sessions.values():  # its listener gets the time to come back
        session.last_poll, session.offers = time.monotonic(), {}
    return state


def written(state: ServiceState) -> str:
    """Return the text of a state's file."""
    return str(_adapter().dump_json(state).decode())


@cache
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(ServiceState)


def page(key: str, items: Sequence[Object], query: Mapping[str, str]) -> object:
    """Return one page of a list in the form of the REST API: under a key, or a plain list where it is empty."""
    size, number = int(query.get("per_page", 30)), int(query.get("page", 1))
    shown = list(items[size * (number - 1) : size * number])
    return {"total_count": len(items), key: shown} if key else shown


def parse_job_order(order: Mapping[str, Any], number: int) -> Job:
    """Return a pushed job. Raises Refused."""
    keys = ("labels", "seconds", "name", "repository", "run", "fails")
    labels, seconds = order.get("labels"), order.get("seconds", 1.0)
    problem = ""
    if unknown := sorted(set(order) - set(keys)):
        problem = f"has no {', '.join(unknown)}; expected: {', '.join(keys)}"
    elif not isinstance(labels, list) or not all(isinstance(label, str) and label.strip() for label in labels or [0]):
        problem = "needs labels: a list of at least one text, its runs-on"
    elif not (isinstance(seconds, int | float) and 0 < seconds <= LONGEST_JOB_SECONDS):
        problem = f"cannot work for {seconds} seconds; expected: more than 0, at most {LONGEST_JOB_SECONDS:.0f}"
    if problem:
        raise Refused(400, "BadRequest", f"a job {problem}")
    name, repository = str(order.get("name") or "job"), str(order.get("repository") or "acme/lab")
    run, fails = int(order.get("run") or 0), bool(order.get("fails"))
    return Job(number, name, repository, tuple(labels or ()), float(seconds), run=run, fails=fails)
