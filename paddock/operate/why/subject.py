"""Objects that one walk of the chain is about: a scale set, and the runner, pod or job that waits longest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paddock.errors import PaddockError, did_you_mean
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.model.runner import Runner
from paddock.operate.snapshot.model import Object, Snapshot
from paddock.operate.why.choice import choose
from paddock.operate.why.objects import (
    OF_RUNNER,
    SET_ID,
    SET_LABEL,
    job_pod,
    labels_of,
    listener_of,
    makes,
    own_sets,
    pod_of,
    pool_nodes,
    requested_labels,
    runner_group_of,
    runner_pods,
    runner_set_of,
    runners_of,
    serves,
    set_name,
    stated_labels,
)

__all__ = [
    "OF_RUNNER",
    "SET_ID",
    "SET_LABEL",
    "Subject",
    "UnknownTarget",
    "job_of",
    "of_queued",
    "own_sets",
    "pool_nodes",
    "runner_pods",
    "runner_set_of",
    "runners_of",
    "set_name",
    "subject",
    "subjects",
]

_SELF_HOSTED = "self-hosted"
_JOB_ADDRESS = re.compile(r"https?://[^/]+/([^/]+)/([^/]+)/actions/runs/\d+/(?:attempts/\d+/)?jobs?/(\d+)")


class UnknownTarget(PaddockError):
    """Nothing of that name is in the snapshot."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Subject:
    """Objects of one walk. Those that are not there are None."""

    runner_key: str
    """Key of the runner in the stack file."""
    spec: Runner
    pool: GpuPool
    job: Object | None = None
    runner_set: Object | None = None
    runner_group: Object | None = None
    """EphemeralRunnerSet: the one that has runners, else the newest."""
    listener: Object | None = None
    runner: Object | None = None
    pod: Object | None = None
    steers: Object | None = None
    """The runner's own pod, where `pod` is the one that the job has for itself."""
    lost: str = ""
    """Name of the runner that has the job by GitHub's word, where the cluster has none of that name."""

    @property
    def scale_set(self) -> str:
        return self.spec.scale_set

    @property
    def queued(self) -> bool:
        """True for a job that waits for a runner."""
        return self.job is not None and self.job.get("status") == "queued"


def job_of(target: str) -> str:
    """Return `owner/repository/ID` of a job's address, and nothing for anything else."""
    match = _JOB_ADDRESS.match(target)
    return "/".join(match.groups()) if match else ""


def subjects(snapshot: Snapshot, target: str = "") -> list[Subject]:
    """Return what to walk along: the target, or each scale set of the fleet. Raises UnknownTarget.

    A queued job has a subject for each scale set that serves it: GitHub may give it to any of them.
    """
    if not target:
        return [subject(snapshot, key) for key in snapshot.fleet.runners]
    if job_of(target) or target.isdecimal():
        return _for_job(snapshot, _job(snapshot, target))
    for key, spec in snapshot.fleet.runners.items():
        if target in (key, spec.scale_set):
            return [subject(snapshot, key)]
    for key in snapshot.fleet.runners:
        for runner in runners_of(snapshot, key):
            if runner["metadata"]["name"] == target:
                return [subject(snapshot, key, runner=runner)]
        for pod in runner_pods(snapshot, key):
            if pod["metadata"]["name"] == target:
                return [subject(snapshot, key, pod=pod)]
    raise _no_such(snapshot, target)


def of_queued(snapshot: Snapshot) -> list[tuple[Object, list[Subject]]]:
    """Return the jobs that wait at GitHub and concern the fleet, with their subjects.

    These are the ones that a scale set of it serves, and those for self-hosted runners that no runner serves.
    """
    waiting = [job for job in snapshot.jobs if job.get("status") == "queued"]
    return [(job, _for_job(snapshot, job)) for job in waiting if _concerns(snapshot, job)]


def _concerns(snapshot: Snapshot, job: Object) -> bool:
    if any(serves(snapshot, key, job) for key in snapshot.fleet.runners):
        return True
    requested = requested_labels(job)
    others = (
        {str(label.get("name")).lower() for label in runner.get("labels") or []} for runner in snapshot.github_runners
    )
    return _SELF_HOSTED in requested and not any(requested <= has for has in others)


def _no_such(snapshot: Snapshot, target: str) -> UnknownTarget:
    names = [spec.scale_set for spec in snapshot.fleet.runners.values()]
    objects = [*snapshot.runners, *(pod for pod in snapshot.pods if labels_of(pod).get(SET_LABEL))]
    names += [str(item["metadata"]["name"]) for item in objects]
    unread = [reading.reason for reading in (snapshot.runners, snapshot.pods) if not reading.known]
    also = f" (runners and pods are not known: {unread[0]})" if unread else ""
    sets = ", ".join(dict.fromkeys(spec.scale_set for spec in snapshot.fleet.runners.values()))
    return UnknownTarget(
        f"{target} is not a scale set, runner or job of this stack{also}"
        f"\n    expected: {did_you_mean(target, names, f'one of {sets}, a runner or a job address')}"
        "\n    fix: kubectl get ephemeralrunners -A, or the address of the job's page"
    )


def _job(snapshot: Snapshot, target: str) -> Object:
    number = (job_of(target) or target).rpartition("/")[2]
    job = next((job for job in snapshot.jobs if str(job.get("id")) == number), None)
    if job is None:
        reason = snapshot.jobs.reason or "GitHub has no waiting job of that number"
        raise UnknownTarget(
            f"job {target}: {reason}\n    expected: a job's address, and --github-key"
            "\n    fix: copy the address of the job's page: https://.../actions/runs/N/job/M"
        )
    return job


def _for_job(snapshot: Snapshot, job: Object) -> list[Subject]:
    fleet = snapshot.fleet
    if name := str(job.get("runner_name") or ""):
        for key in fleet.runners:
            for runner in runners_of(snapshot, key):
                if name in (runner["metadata"]["name"], (runner.get("status") or {}).get("runnerName")):
                    return [subject(snapshot, key, job=job, runner=runner)]
            for pod in runner_pods(snapshot, key):
                if name == pod["metadata"]["name"]:
                    return [subject(snapshot, key, job=job, pod=pod)]
        return [_without_runner(snapshot, _maker(snapshot, name, job), job, name)]
    keys = [key for key in fleet.runners if serves(snapshot, key, job)]
    # The link of GitHub's queue says that nothing serves it; the nearest set is shown.
    return [subject(snapshot, key, job=job) for key in keys or [_nearest(snapshot, job)]]


def _nearest(snapshot: Snapshot, job: Object) -> str:
    requested = requested_labels(job)
    return max(snapshot.fleet.runners, key=lambda key: len(requested & stated_labels(snapshot, key)))


def _maker(snapshot: Snapshot, name: str, job: Object) -> str:
    """Return the key of the runner whose scale set made a runner, else of the nearest."""
    own = next((key for key in snapshot.fleet.runners if makes(snapshot, key, name)), "")
    return own or _nearest(snapshot, job)


def _without_runner(snapshot: Snapshot, key: str, job: Object, lost: str) -> Subject:
    spec = snapshot.fleet.runners[key]
    runner_set = runner_set_of(snapshot, spec)
    group, listener = runner_group_of(snapshot, runner_set, spec), listener_of(snapshot, runner_set, spec)
    return Subject(key, spec, snapshot.fleet.pools[spec.pool], job, runner_set, group, listener, lost=lost)


def subject(
    snapshot: Snapshot,
    key: str,
    *,
    job: Object | None = None,
    runner: Object | None = None,
    pod: Object | None = None,
) -> Subject:
    """Return a scale set with one of its runners: the named one, else the one that is in trouble or waits longest.

    A queued job can only get a runner that has none.
    """
    spec = snapshot.fleet.runners[key]
    runner_set = runner_set_of(snapshot, spec)
    queued = job is not None and job.get("status") == "queued"
    own, own_pods = runners_of(snapshot, key), runner_pods(snapshot, key)
    if runner is None and pod is None:
        runner, pod = choose(snapshot, own, own_pods, queued=queued)
    elif runner is not None:
        pod = pod_of(own_pods, runner)
    elif pod is not None:
        runner = next((item for item in own if item["metadata"]["name"] == pod["metadata"]["name"]), None)
    work = job_pod(snapshot, pod)
    return Subject(
        key,
        spec,
        snapshot.fleet.pools[spec.pool],
        job,
        runner_set,
        runner_group_of(snapshot, runner_set, spec),
        listener_of(snapshot, runner_set, spec),
        runner,
        work or pod,
        pod if work else None,
    )
