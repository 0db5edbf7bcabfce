"""Behaviour of the Actions service: a job is offered to scale sets, acquired, run once, and completed.

Follows what ARC's client (github.com/actions/scaleset) asks for and relies on. GitHub does not publish how it chooses
between two sets that both serve a job; here the first that acquires it has it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from paddock.lab.control_plane.state import write_private
from paddock.lab.github import admission, model
from paddock.lab.github.messages import available, job_record, message, next_message, runner_record, set_record
from paddock.lab.github.model import Job, Object, Refused, Runner, ScaleSet, ServiceState, Session

SESSION_SECONDS = 5.0
"""After that time without a poll another listener may have the session. GitHub takes minutes."""
_Value = TypeVar("_Value")
_KIND = "GitHub.Actions.Runtime.WebApi"


class Service:
    """One organisation's. Every method may be called from any thread."""

    def __init__(self, file: Path | None = None) -> None:
        """`file` keeps it over a restart. Raises LabError for a file that is not one."""
        self._file = file
        self._changes = threading.Condition(threading.RLock())
        self._state = model.read(file) if file else ServiceState()

    def using(self, use: Callable[[ServiceState], _Value], *, changes: bool) -> _Value:
        """Return what a function returns of the state, which is kept where it `changes` it."""
        with self._changes:
            result = use(self._state)
            if changes:
                self._changed()
            return result

    # Jobs.

    def push(self, order: Mapping[str, Any]) -> Object:
        """Queues a job. Raises Refused."""
        with self._changes:
            return self._queue(model.parse_job_order(order, len(self._state.jobs) + 1))

    def run_again(self, jobs: Iterable[int]) -> list[Object]:
        """Queue another attempt of jobs of one run. Raises Refused while the run is in progress."""
        with self._changes:
            before = [self._job(number) for number in jobs]
            every = [job for job in self._state.jobs.values() if job.run_id == before[0].run_id]
            if any(job.state != model.COMPLETED for job in every):
                raise Refused(403, "Forbidden", "The workflow run containing this job is already running")
            attempt = max(job.attempt for job in every) + 1
            again: dict[str, Any] = {"run": before[0].run_id, "attempt": attempt, "state": "", "result": ""}
            again |= {"scale_set": None, "runner": "", "lost": False}
            return [self._queue(replace(job, id=len(self._state.jobs) + 1, history=[], **again)) for job in before]

    def in_repository(self, repository: str) -> list[Job]:
        """Return the jobs of a repository, all attempts of them."""
        with self._changes:
            return [job for job in self._state.jobs.values() if job.repository.lower() == repository.lower()]

    def _queue(self, job: Job) -> Object:
        job.enter(model.QUEUED, time.time())
        self._state.jobs[job.id] = job
        admission.made(self._state, job.repository)
        self._changed()
        return job_record(self._state, job)

    def jobs(self) -> list[Object]:
        with self._changes:
            return [job_record(self._state, job) for job in self._state.jobs.values()]

    def job(self, number: int) -> Object:
        with self._changes:
            return job_record(self._state, self._job(number))

    def cancel(self, number: int) -> Object:
        """End a job that has not ended yet."""
        with self._changes:
            job = self._job(number)
            if job.state != model.COMPLETED:
                self._complete(job, "canceled")
            self._changed()
            return job_record(self._state, job)

    # Scale sets.

    def group(self, name: str) -> Object:
        """Return a runner group; at GitHub someone has made it before."""
        with self._changes:
            by_folded_name = {group.casefold(): group for group in self._state.groups}
            if name.casefold() not in by_folded_name:
                self._state.groups.append(name)
                self._changed()
            match = by_folded_name.get(name.casefold(), name)
            return {"id": self._state.groups.index(match) + 1, "name": match, "isDefaultGroup": match == "Default"}

    def create_set(self, order: Mapping[str, Any]) -> Object:
        with self._changes:
            name, group = str(order.get("name") or ""), self._group(order.get("runnerGroupId") or 1)
            if not name:
                raise Refused(400, f"{_KIND}.RunnerScaleSetInvalidException", "a scale set needs a name")
            if self.sets(name, self._state.groups.index(group) + 1):
                message = f"a runner scale set {name} already exists in group {group}"
                raise Refused(409, f"{_KIND}.RunnerScaleSetExistsException", message)
            labels = tuple(str(label["name"]) for label in order.get("labels") or [{"name": name}])
            scale_set = ScaleSet(
                self._state.new_id(), name, group, labels, time.time(), dict(order.get("RunnerSetting") or {})
            )
            self._state.sets[scale_set.id] = scale_set
            self._changed()
            return set_record(self._state, scale_set)

    def sets(self, name: str | None = None, group: int | None = None) -> list[Object]:
        with self._changes:
            return [
                set_record(self._state, scale_set)
                for scale_set in self._state.sets.values()
                if name in (None, scale_set.name) and group in (None, self._state.groups.index(scale_set.group) + 1)
            ]

    def scale_set(self, number: int) -> Object:
        with self._changes:
            return set_record(self._state, self._set(number))

    def update_set(self, number: int, change: Mapping[str, Any]) -> Object:
        with self._changes:
            scale_set = self._set(number)
            scale_set.name = str(change.get("name") or scale_set.name)
            if "runnerGroupId" in change:
                scale_set.group = self._group(change["runnerGroupId"])
            if change.get("labels"):
                scale_set.labels = tuple(str(label["name"]) for label in change["labels"])
            self._changed()
            return set_record(self._state, scale_set)

    def delete_set(self, number: int) -> None:
        """Delete a set. Jobs that it had acquired and not begun are free again."""
        with self._changes:
            del self._state.sets[self._set(number).id]
            for session in [session for session in self._state.sessions.values() if session.scale_set == number]:
                del self._state.sessions[session.id]
            for job in self._state.jobs.values():
                if job.scale_set == number and job.state == model.ACQUIRED:
                    job.scale_set = None
                    job.enter(model.QUEUED, time.time())
            for runner in [runner for runner in self._state.runners.values() if runner.scale_set == number]:
                self._end(runner, "failed")
            self._changed()

    # Sessions and messages.

    def open_session(self, number: int, owner: str) -> Object:
        with self._changes:
            scale_set, now = self._set(number), time.monotonic()
            for other in [session for session in self._state.sessions.values() if session.scale_set == number]:
                if now - other.last_poll < SESSION_SECONDS:
                    message = (
                        f"The actions runner scaleset {scale_set.name} has an active session for owner {other.owner}."
                    )
                    raise Refused(409, f"{_KIND}.RunnerScaleSetSessionConflictException", message)
                del self._state.sessions[other.id]
            session = Session(str(uuid.uuid4()), owner, number, now)
            self._state.sessions[session.id] = session
            self._changed()
            return self._opened(session)

    def set_of(self, name: str) -> int:
        """Return the scale set of a session."""
        with self._changes:
            return self._session(name).scale_set

    def renew_session(self, name: str) -> Object:
        with self._changes:
            session = self._session(name)
            session.last_poll = time.monotonic()
            return self._opened(session)

    def close_session(self, name: str) -> None:
        with self._changes:
            del self._state.sessions[self._session(name).id]
            self._changed()

    def poll(
        self, name: str, last: int, capacity: int | None, seconds: float, connected: Callable[[], bool]
    ) -> Object | None:
        """Wait for the next message after `last`; return None on a timeout, or when the caller has disconnected."""
        deadline = time.monotonic() + seconds
        with self._changes:
            while True:
                session = self._session(name)
                session.last_poll = time.monotonic()
                if message := next_message(self._state, session, last, capacity, session.last_poll):
                    self._changed()
                    return message
                if time.monotonic() >= deadline or not connected():
                    return None
                self._changes.wait(min(1.0, max(0.0, deadline - time.monotonic())))

    def acknowledge(self, name: str, message: int) -> None:
        with self._changes:
            scale_set = self._set(self._session(name).scale_set)
            scale_set.messages = [entry for entry in scale_set.messages if entry[0] != message]
            self._changed()

    def acquire(self, number: int, jobs: Iterable[int]) -> list[int]:
        """Assign these jobs to a set, and return those that it now has."""
        with self._changes:
            scale_set, acquired = self._set(number), []
            for job in (self._state.jobs.get(number) for number in jobs):
                if job and job in available(self._state, scale_set):
                    job.scale_set = number
                    job.enter(model.ACQUIRED, time.time())
                    self._send(job, "JobAssigned")
                    acquired.append(job.id)
            self._changed()
            return acquired

    # Runners.

    def register(self, number: int, name: str) -> Object:
        """Return a runner that is about to come up, for one job of this set."""
        with self._changes:
            scale_set = self._set(number)
            if not name:
                raise Refused(400, "GitHub.DistributedTask.WebApi.InvalidAgentException", "a runner needs a name")
            if name in self._state.runners:
                message = f"Already exists - A runner with the name '{name}' exists in the pool."
                raise Refused(
                    409, "GitHub.DistributedTask.WebApi.TaskAgentExistsException, AgentExistsException", message
                )
            runner = Runner(self._state.new_id(), name, scale_set.id, time.time())
            self._state.runners[name] = runner
            self._changed()
            return runner_record(runner)

    def runners(self, name: str | None = None) -> list[Object]:
        with self._changes:
            return [runner_record(runner) for runner in self._state.runners.values() if name in (None, runner.name)]

    def runner(self, number: int) -> Object:
        with self._changes:
            return runner_record(self._runner(number))

    def remove_runner(self, number: int) -> None:
        with self._changes:
            runner = next((runner for runner in self._state.runners.values() if runner.id == number), None)
            if runner is None:
                return  # ARC removes runners that GitHub has forgotten, and takes any other answer for a failure
            if runner.job is not None and self._job(runner.job).state == model.RUNNING:
                message = f"Runner {runner.name} is currently running a job and cannot be deleted."
                raise Refused(400, "GitHub.DistributedTask.WebApi.JobStillRunningException", message)
            self._end(runner, "")
            self._changed()

    def online(self, name: str, pod: Mapping[str, Any] | None = None) -> Object | None:
        """Record that a runner's program is online; return its job, if there is one for it."""
        with self._changes:
            runner = self._state.runners.get(name)
            if runner is None:
                raise Refused(404, "AgentNotFoundException", f"no runner {name}")
            now, fresh = time.time(), runner.online is None
            runner.online = now if runner.online is None else runner.online
            runner.pod.update(pod or {})
            if runner.job is None and (job := self._for(runner)):
                runner.job, job.runner = job.id, name
                job.enter(model.RUNNING, now)
                self._send(job, "JobStarted", runner)
                fresh = True
            if fresh:
                self._changed()
            return None if runner.job is None else job_record(self._state, self._job(runner.job))

    def ended(self, name: str, result: str, *, lost: bool = False) -> Object | None:
        """Record the end of a runner's program; return its job. GitHub forgets a runner after its one job.

        `lost` is for one that vanished.
        """
        with self._changes:
            runner = self._state.runners.get(name)
            if runner is None:
                raise Refused(404, "AgentNotFoundException", f"no runner {name}")
            job = None if runner.job is None else self._job(runner.job)
            if job and job.state != model.COMPLETED:
                job.lost = lost
            self._end(runner, result)
            self._changed()
            return job_record(self._state, job) if job else None

    def known_runners(self) -> list[Object]:
        """Return the registered runners, for the simulator of their programs."""
        with self._changes:
            return [
                {"name": runner.name, "online": runner.online is not None, "job": runner.job}
                for runner in self._state.runners.values()
            ]

    # Internals.

    def _for(self, runner: Runner) -> Job | None:
        jobs = (job for job in self._state.jobs.values() if job.scale_set == runner.scale_set)
        return next((job for job in jobs if job.state == model.ACQUIRED), None)

    def _end(self, runner: Runner, result: str) -> None:
        del self._state.runners[runner.name]
        self._state.former[runner.name] = runner
        job = self._state.jobs.get(runner.job or 0)
        if job and job.state != model.COMPLETED:
            self._complete(job, result, runner)

    def _complete(self, job: Job, result: str, runner: Runner | None = None) -> None:
        job.result = result
        job.enter(model.COMPLETED, time.time())
        self._send(job, "JobCompleted", runner or self._state.runners.get(job.runner))

    def _send(self, job: Job, kind: str, runner: Runner | None = None) -> None:
        scale_set = self._state.sets.get(job.scale_set or 0)
        if scale_set:
            scale_set.events.append(message(job, kind, runner))

    def _opened(self, session: Session) -> Object:
        record = set_record(self._state, self._set(session.scale_set))
        return {
            "sessionId": session.id,
            "ownerName": session.owner,
            "runnerScaleSet": record,
            "statistics": record["statistics"],
        }

    def _job(self, number: int) -> Job:
        return _of(self._state.jobs, number, "NotFound", f"no job {number}")

    def _set(self, number: int) -> ScaleSet:
        message = f"No runner scale set found with identifier {number}."
        return _of(self._state.sets, number, f"{_KIND}.RunnerScaleSetNotFoundException", message)

    def _session(self, name: str) -> Session:
        message = f"session {name} does not exist"
        return _of(self._state.sessions, name, f"{_KIND}.RunnerScaleSetSessionNotFoundException", message)

    def _runner(self, number: int) -> Runner:
        by_id = {runner.id: runner for runner in self._state.runners.values()}
        return _of(by_id, number, "AgentNotFoundException", f"no runner {number}")

    def _group(self, number: int) -> str:
        if not 1 <= number <= len(self._state.groups):
            raise Refused(404, f"{_KIND}.RunnerGroupNotFoundException", f"no runner group {number}")
        return self._state.groups[number - 1]

    def _changed(self) -> None:
        if self._file:
            write_private(self._file, model.written(self._state))
        self._changes.notify_all()


def _of(items: Mapping[Any, _Value], key: object, kind: str, message: str) -> _Value:
    if key not in items:
        raise Refused(404, kind, message)
    return items[key]
