"""What a scale set's listener is told: statistics, and messages in the words of ARC's client."""

from __future__ import annotations

import json
import time

from paddock.lab.github.model import ACQUIRED, COMPLETED, QUEUED, RUNNING, Job, Object, Runner, ScaleSet, Session, World

OFFER_SECONDS = 5.0
"""A job that was offered and not acquired is offered again."""


def statistics(world: World, found: ScaleSet) -> dict[str, int]:
    """The figures that go with every message. ARC wants as many runners as there are assigned jobs."""
    jobs = [each for each in world.jobs.values() if each.scale_set == found.id]
    runners = [each for each in world.runners.values() if each.scale_set == found.id]
    waiting, running = (sum(each.state == state for each in jobs) for state in (ACQUIRED, RUNNING))
    busy = sum(each.job is not None for each in runners)
    return {
        "totalAvailableJobs": len(_available(world, found)),
        "totalAcquiredJobs": waiting + running,
        "totalAssignedJobs": waiting + running,
        "totalRunningJobs": running,
        "totalRegisteredRunners": len(runners),
        "totalBusyRunners": busy,
        "totalIdleRunners": sum(each.online is not None for each in runners) - busy,
    }


def next_message(world: World, session: Session, last: int, capacity: int | None, now: float) -> Object | None:
    """The first message after `last` that nobody acknowledged, or one of what has happened since; None if nothing has.

    A message that the listener has had and not acknowledged comes again when it asks for it. `now`: monotonic seconds.
    """
    found = world.sets[session.scale_set]
    waiting = next((each for each in found.messages if each[0] > last), None)
    if waiting is None:
        bodies = [*_offers(world, session, found, capacity, now), *found.events]
        if not bodies:
            return None
        found.last_message = max(found.last_message, last) + 1
        found.events, waiting = [], (found.last_message, bodies)
        found.messages.append(waiting)
    return {
        "messageId": waiting[0],
        "messageType": "RunnerScaleSetJobMessages",
        "body": json.dumps(waiting[1]),
        "statistics": statistics(world, found),
    }


def message(job: Job, kind: str, runner: Runner | None = None) -> Object:
    """What is told of one job."""
    began: dict[str, float] = dict(job.history)
    times = {
        "queueTime": began[QUEUED],
        "scaleSetAssignTime": began.get(ACQUIRED),
        "runnerAssignTime": began.get(RUNNING),
        "finishTime": began.get(COMPLETED),
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
        "workflowRunId": job.id,
        "eventName": "push",
        "requestLabels": list(job.labels),
        **{name: stamp(at) for name, at in times.items() if at is not None},
        **({"runnerId": runner.id, "runnerName": runner.name} if runner else {}),
        **({"result": job.result} if kind == "JobCompleted" else {}),
    }


def job_record(world: World, job: Job) -> Object:
    """A job with its history, for the lab's own control."""
    found = world.sets.get(job.scale_set or 0)
    runner = world.runners.get(job.runner) or world.former.get(job.runner)
    return {
        "id": job.id,
        "name": job.name,
        "repository": job.repository,
        "labels": list(job.labels),
        "seconds": job.seconds,
        "state": job.state,
        "result": job.result,
        "scale_set": found.name if found else "",
        "runner": job.runner,
        "registered": runner.registered if runner else None,
        "pod": dict(runner.pod) if runner else {},
        "history": [{"state": state, "at": at} for state, at in job.history],
    }


def set_record(world: World, found: ScaleSet) -> Object:
    """A scale set as the service shows it."""
    return {
        "id": found.id,
        "name": found.name,
        "runnerGroupId": world.groups.index(found.group) + 1,
        "runnerGroupName": found.group,
        "labels": [{"name": label, "type": "System"} for label in found.labels],
        "RunnerSetting": found.settings,
        "createdOn": stamp(found.created),
        "statistics": statistics(world, found),
    }


def runner_record(runner: Runner) -> Object:
    """A runner as the service shows it."""
    return {"id": runner.id, "name": runner.name, "runnerScaleSetId": runner.scale_set}


def stamp(seconds: float) -> str:
    """A time as the service writes it."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds % 1 * 1000):03d}Z"


def _available(world: World, found: ScaleSet) -> list[Job]:
    return [job for job in world.jobs.values() if job.state == QUEUED and found.serves(job.labels)]


def _offers(world: World, session: Session, found: ScaleSet, capacity: int | None, now: float) -> list[Object]:
    """Jobs to offer now: no more than the listener has room for, and none twice within a short time."""
    free = _available(world, found)
    offered = {job.id for job in free if now - session.offers.get(job.id, -OFFER_SECONDS) < OFFER_SECONDS}
    fresh = [job for job in free if job.id not in offered]
    if capacity is not None:
        taken = statistics(world, found)["totalAssignedJobs"] + len(offered)
        fresh = fresh[: max(0, capacity - taken)]
    session.offers = {each: session.offers[each] for each in offered} | {job.id: now for job in fresh}
    return [message(job, "JobAvailable") for job in fresh]
