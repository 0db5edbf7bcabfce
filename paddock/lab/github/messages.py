"""Messages to the listener of a scale set, and records of the service, in the form that ARC's client reads."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from paddock.lab.github import model
from paddock.lab.github.admission import admits
from paddock.lab.github.model import Job, Object, Runner, ScaleSet, ServiceState, Session

OFFER_SECONDS = 5.0
"""Seconds until a job that was offered and not acquired is offered again."""


def statistics(state: ServiceState, scale_set: ScaleSet) -> dict[str, int]:
    """Return the figures of every message. ARC creates as many runners as there are assigned jobs."""
    jobs = [job for job in state.jobs.values() if job.scale_set == scale_set.id]
    runners = [runner for runner in state.runners.values() if runner.scale_set == scale_set.id]
    waiting, running = (sum(job.state == state for job in jobs) for state in (model.ACQUIRED, model.RUNNING))
    busy = sum(runner.job is not None for runner in runners)
    return {
        "totalAvailableJobs": len(available(state, scale_set)),
        "totalAcquiredJobs": waiting + running,
        "totalAssignedJobs": waiting + running,
        "totalRunningJobs": running,
        "totalRegisteredRunners": len(runners),
        "totalBusyRunners": busy,
        "totalIdleRunners": sum(runner.online is not None for runner in runners) - busy,
    }


def next_message(state: ServiceState, session: Session, last: int, capacity: int | None, now: float) -> Object | None:
    """Return the first unacknowledged message after `last`, or a new one of what happened since; None if nothing did.

    A message that the listener received and did not acknowledge is sent again. `now`: monotonic seconds.
    """
    scale_set = state.sets[session.scale_set]
    waiting = next((entry for entry in scale_set.messages if entry[0] > last), None)
    if waiting is None:
        bodies = [*_offers(state, session, scale_set, capacity, now), *scale_set.events]
        if not bodies:
            return None
        scale_set.last_message = max(scale_set.last_message, last) + 1
        scale_set.events, waiting = [], (scale_set.last_message, bodies)
        scale_set.messages.append(waiting)
    return {
        "messageId": waiting[0],
        "messageType": "RunnerScaleSetJobMessages",
        "body": json.dumps(waiting[1]),
        "statistics": statistics(state, scale_set),
    }


def message(job: Job, kind: str, runner: Runner | None = None) -> Object:
    """Return a message about one job."""
    entered: dict[str, float] = dict(job.history)
    times = {
        "queueTime": entered[model.QUEUED],
        "scaleSetAssignTime": entered.get(model.ACQUIRED),
        "runnerAssignTime": entered.get(model.RUNNING),
        "finishTime": entered.get(model.COMPLETED),
    }
    owner, _, repository = job.repository.partition("/")
    return {
        "messageType": kind,
        "runnerRequestId": job.id,
        "repositoryName": repository,
        "ownerName": owner,
        "jobId": str(job.id),
        "jobWorkflowRef": f"{job.repository}/.github/workflows/lab.yml@refs/heads/main",
        "jobDisplayName": job.name,
        "workflowRunId": job.run_id,
        "eventName": "push",
        "requestLabels": list(job.labels),
        **{name: stamp(at) for name, at in times.items() if at is not None},
        **({"runnerId": runner.id, "runnerName": runner.name} if runner else {}),
        **({"result": job.result} if kind == "JobCompleted" else {}),
    }


def job_record(state: ServiceState, job: Job) -> Object:
    """Return a job with its history, for the lab's own control."""
    scale_set = state.sets.get(job.scale_set or 0)
    runner = state.runners.get(job.runner) or state.former.get(job.runner)
    return {
        **asdict(job),
        "scale_set": scale_set.name if scale_set else "",
        "run": job.run_id,
        "registered": runner.registered if runner else None,
        "pod": dict(runner.pod) if runner else {},
        "history": [{"state": state, "at": at} for state, at in job.history],
    }


def set_record(state: ServiceState, scale_set: ScaleSet) -> Object:
    """Return a scale set in the service's form."""
    return {
        "id": scale_set.id,
        "name": scale_set.name,
        "runnerGroupId": state.groups.index(scale_set.group) + 1,
        "runnerGroupName": scale_set.group,
        "labels": [{"name": label, "type": "System"} for label in scale_set.labels],
        "RunnerSetting": scale_set.settings,
        "createdOn": stamp(scale_set.created),
        "statistics": statistics(state, scale_set),
    }


def runner_record(runner: Runner) -> Object:
    """Return a runner in the service's form."""
    return {"id": runner.id, "name": runner.name, "runnerScaleSetId": runner.scale_set}


def stamp(seconds: float) -> str:
    """Return a time in the service's form."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds % 1 * 1000):03d}Z"


def available(state: ServiceState, scale_set: ScaleSet) -> list[Job]:
    """Return the queued jobs whose labels a scale set has, and whose repositories its group admits."""
    return [
        job
        for job in state.jobs.values()
        if job.state == model.QUEUED and scale_set.serves(job.labels) and admits(state, scale_set.group, job.repository)
    ]


def _offers(
    state: ServiceState, session: Session, scale_set: ScaleSet, capacity: int | None, now: float
) -> list[Object]:
    """Return the jobs to offer now: no more than the listener has room for, and none twice within a short time."""
    free = available(state, scale_set)
    offered = {job.id for job in free if now - session.offers.get(job.id, -OFFER_SECONDS) < OFFER_SECONDS}
    fresh = [job for job in free if job.id not in offered]
    if capacity is not None:
        assigned = statistics(state, scale_set)["totalAssignedJobs"] + len(offered)
        fresh = fresh[: max(0, capacity - assigned)]
    session.offers = {job_id: session.offers[job_id] for job_id in offered} | {job.id: now for job in fresh}
    return [message(job, "JobAvailable") for job in fresh]
