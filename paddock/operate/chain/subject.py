"""Objects that one walk of the chain is about: a scale set, and the runner, pod or job that waits longest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.errors import PaddockError, did_you_mean
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.model.runner import Runner
from paddock.kube import pods as pods_
from paddock.operate.snapshot.model import Object, Snapshot, moment

SET_LABEL = "actions.github.com/scale-set-name"
RUNNER_LABEL = "actions-ephemeral-runner"
OF_RUNNER = "runner-pod"
"""Label with which ARC's container hook marks the pod of a job that does not run in its runner's."""
SET_ID = "runner-scale-set-id"
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

    @property
    def scale_set(self) -> str:
        return self.spec.scale_set


def job_of(target: str) -> str:
    """Return `owner/repository/ID` of a job's address, and nothing for what is none."""
    match = _JOB_ADDRESS.match(target)
    return "/".join(match.groups()) if match else ""


def subjects(snapshot: Snapshot, target: str = "") -> list[Subject]:
    """Return what to walk along: the target, or each scale set of the fleet. Raises UnknownTarget."""
    if not target:
        return [subject(snapshot, key) for key in snapshot.fleet.runners]
    if job_of(target) or target.isdecimal():
        return [_for_job(snapshot, target)]
    for key, spec in snapshot.fleet.runners.items():
        if target in (key, spec.scale_set):
            return [subject(snapshot, key)]
    for key in snapshot.fleet.runners:
        for runner in _of_set(snapshot.runners, snapshot, key):
            if runner["metadata"]["name"] == target:
                return [subject(snapshot, key, runner=runner)]
        for pod in runner_pods(snapshot, key):
            if pod["metadata"]["name"] == target:
                return [subject(snapshot, key, pod=pod)]
    raise _no_such(snapshot, target)


def _no_such(snapshot: Snapshot, target: str) -> UnknownTarget:
    names = [spec.scale_set for spec in snapshot.fleet.runners.values()]
    objects = [*snapshot.runners, *(pod for pod in snapshot.pods if _labels(pod).get(SET_LABEL))]
    names += [str(item["metadata"]["name"]) for item in objects]
    unread = [reading.reason for reading in (snapshot.runners, snapshot.pods) if not reading.known]
    also = f" (runners and pods are not known: {unread[0]})" if unread else ""
    sets = ", ".join(dict.fromkeys(spec.scale_set for spec in snapshot.fleet.runners.values()))
    return UnknownTarget(
        f"{target} is no scale set, runner or job of this stack{also}"
        f"\n    expected: {did_you_mean(target, names, f'one of {sets}, a runner or a job address')}"
        "\n    fix: kubectl get ephemeralrunners -A, or the address of the job's page"
    )


def _for_job(snapshot: Snapshot, target: str) -> Subject:
    number = (job_of(target) or target).rpartition("/")[2]
    job = next((job for job in snapshot.jobs if str(job.get("id")) == number), None)
    if job is None:
        reason = snapshot.jobs.reason or "GitHub has no waiting job of that number"
        raise UnknownTarget(
            f"job {target}: {reason}\n    expected: a job's address, and --github-key"
            "\n    fix: copy the address of the job's page: https://.../actions/runs/N/job/M"
        )
    name = job.get("runner_name")
    for key in snapshot.fleet.runners:
        for runner in _of_set(snapshot.runners, snapshot, key):
            status = runner.get("status") or {}
            if name and name in (runner["metadata"]["name"], status.get("runnerName")):
                return subject(snapshot, key, job=job, runner=runner)
    asked = {str(label).lower() for label in job.get("labels") or []}
    for key in snapshot.fleet.runners:
        if asked <= served_labels(snapshot, key) | stated_labels(snapshot, key):
            return subject(snapshot, key, job=job)
    # The link of GitHub's queue says that nothing serves it; the nearest set is shown.
    best = max(snapshot.fleet.runners, key=lambda key: len(asked & stated_labels(snapshot, key)))
    return subject(snapshot, best, job=job)


def stated_labels(snapshot: Snapshot, key: str) -> set[str]:
    """Return the labels that the stack file gives a runner."""
    spec = snapshot.fleet.runners[key]
    return {label.lower() for label in (spec.scale_set, *spec.effective_labels)}


def served_labels(snapshot: Snapshot, key: str) -> set[str]:
    """Return the labels of a runner's scale set as it is in the cluster."""
    runner_set = _runner_set(snapshot, snapshot.fleet.runners[key])
    if runner_set is None:
        return set()
    return {str(label).lower() for label in (set_name(runner_set), *(runner_set["spec"].get(_LABELS) or []))}


_LABELS = "runnerScaleSetLabels"


def set_name(runner_set: Object) -> str:
    """Return the name of a set at GitHub."""
    return str(runner_set["spec"].get("runnerScaleSetName") or runner_set["metadata"]["name"])


def subject(
    snapshot: Snapshot,
    key: str,
    *,
    job: Object | None = None,
    runner: Object | None = None,
    pod: Object | None = None,
) -> Subject:
    """Return a scale set with one of its runners: the named one, else the one that is in trouble or waits longest."""
    spec = snapshot.fleet.runners[key]
    runner_set = _runner_set(snapshot, spec)
    own = list(_of_set(snapshot.runners, snapshot, key))
    own_pods = runner_pods(snapshot, key)
    if runner is None and pod is None and own:
        runner = min(own, key=lambda item: _urgency(item, _pod_of(own_pods, item), snapshot))
    if runner is not None and pod is None:
        pod = _pod_of(own_pods, runner)
    elif runner is None and pod is None and own_pods:
        pod = min(own_pods, key=lambda item: _urgency(item, item, snapshot))
    elif runner is None and pod is not None:
        runner = next((item for item in own if item["metadata"]["name"] == pod["metadata"]["name"]), None)
    work = _job_pod(snapshot, pod)
    return Subject(
        key,
        spec,
        snapshot.fleet.pools[spec.pool],
        job,
        runner_set,
        _runner_group(snapshot, runner_set, spec),
        _listener(snapshot, runner_set, spec),
        runner,
        work or pod,
        pod if work else None,
    )


def _urgency(item: Object, pod: Object | None, snapshot: Snapshot) -> tuple[int, str]:
    """Return the order of runners: those that wait before failed ones before those at work, the oldest first."""
    phase = str((pod or {}).get("status", {}).get("phase", "")) if pod else ""
    state = str((item.get("status") or {}).get("phase") or "") if item is not pod else phase
    at_work = bool((item.get("status") or {}).get("jobId") or (item.get("status") or {}).get("jobRequestId"))
    rank = 2 if phase == "Running" and at_work else 1 if state in ("Failed", "Outdated") or phase == "Running" else 0
    return rank, str(item["metadata"].get("creationTimestamp"))


def runner_pods(snapshot: Snapshot, key: str) -> list[Object]:
    """Return the pods of a scale set's runners."""
    name = _set_object_names(snapshot, key)
    return [
        pod
        for pod in snapshot.pods
        if _labels(pod).get(SET_LABEL) in name and RUNNER_LABEL in _labels(pod) and OF_RUNNER not in _labels(pod)
    ]


def runners_of(snapshot: Snapshot, key: str) -> list[Object]:
    """Return the EphemeralRunners of a scale set."""
    return list(_of_set(snapshot.runners, snapshot, key))


def pool_nodes(snapshot: Snapshot, pool: GpuPool) -> list[Object]:
    """Return the nodes of a pool that are in the cluster."""
    from paddock.fleet import nodes

    selector = nodes.gpu_selector(snapshot.fleet, pool)
    return [node for node in snapshot.nodes if selector.items() <= _labels(node).items()]


def occupants(snapshot: Snapshot, node: Object) -> list[Object]:
    """Return the pods that hold resources of a node."""
    name = node["metadata"]["name"]
    return [pod for pod in snapshot.pods if pod["spec"].get("nodeName") == name and pods_.occupies_node(pod)]


def _runner_set(snapshot: Snapshot, spec: Runner) -> Object | None:
    return next((item for item in snapshot.runner_sets if set_name(item) == spec.scale_set), None)


def _set_object_names(snapshot: Snapshot, key: str) -> set[str]:
    spec = snapshot.fleet.runners[key]
    runner_set = _runner_set(snapshot, spec)
    return {spec.scale_set, *([str(runner_set["metadata"]["name"])] if runner_set else [])}


def _of_set(objects: Iterable[Object], snapshot: Snapshot, key: str) -> Iterable[Object]:
    names = _set_object_names(snapshot, key)
    return (item for item in objects if _labels(item).get(SET_LABEL) in names or _owner_is_of(item, snapshot, names))


def _owner_is_of(item: Object, snapshot: Snapshot, names: set[str]) -> bool:
    owners = {str(owner["name"]) for owner in item["metadata"].get("ownerReferences") or []}
    return any(
        group["metadata"]["name"] in owners and _labels(group).get(SET_LABEL) in names
        for group in snapshot.runner_groups
        if owners
    )


def _runner_group(snapshot: Snapshot, runner_set: Object | None, spec: Runner) -> Object | None:
    groups = groups_of(snapshot, runner_set, spec)
    # Two may stand beside each other while ARC changes a template: the newest is the one that grows.
    return max(groups, key=lambda item: str(item["metadata"].get("creationTimestamp")), default=None)


def groups_of(snapshot: Snapshot, runner_set: Object | None, spec: Runner) -> list[Object]:
    """Return the EphemeralRunnerSets of a scale set."""
    names = {spec.scale_set, *([str(runner_set["metadata"]["name"])] if runner_set else [])}
    uid = runner_set["metadata"].get("uid") if runner_set else None

    def of_set(item: Object) -> bool:
        owners = item["metadata"].get("ownerReferences") or []
        return _labels(item).get(SET_LABEL) in names or any(uid and owner.get("uid") == uid for owner in owners)

    return [item for item in snapshot.runner_groups if of_set(item)]


def _listener(snapshot: Snapshot, runner_set: Object | None, spec: Runner) -> Object | None:
    if runner_set is None:
        return None
    meta = runner_set["metadata"]
    place = (meta["name"], meta.get("namespace"))

    def of_set(item: Object) -> bool:
        fields = item.get("spec") or {}
        return (fields.get("autoscalingRunnerSetName"), fields.get("autoscalingRunnerSetNamespace")) == place

    return next((item for item in snapshot.listeners if of_set(item)), None)


def _pod_of(own_pods: Iterable[Object], runner: Object) -> Object | None:
    key = (runner["metadata"].get("namespace"), runner["metadata"]["name"])
    return next((pod for pod in own_pods if (pod["metadata"].get("namespace"), pod["metadata"]["name"]) == key), None)


def _job_pod(snapshot: Snapshot, pod: Object | None) -> Object | None:
    if pod is None:
        return None
    name = pod["metadata"]["name"]
    return next((item for item in snapshot.pods if _labels(item).get(OF_RUNNER) == name), None)


def _labels(item: Object) -> Mapping[str, Any]:
    return item["metadata"].get("labels") or {}


def created(item: Object) -> str:
    """Return when an object was made, for a sentence."""
    time = moment(item["metadata"].get("creationTimestamp"))
    return time.strftime("%H:%M:%S UTC") if time else "unknown"
