"""From GitHub's queue to an EphemeralRunner: the links that Actions Runner Controller holds."""

from __future__ import annotations

from datetime import timedelta

from paddock.errors import one_line
from paddock.operate.chain.links import log_faults
from paddock.operate.chain.links.evidence import (
    PULL_REASONS,
    condition,
    containers,
    latest,
    phase,
    ready,
    restarts,
    span,
    stuck_containers,
    terminated,
    text,
)
from paddock.operate.chain.outcome import Outcome, broken, ok, unknown, unread, waits
from paddock.operate.chain.subject import SET_ID, Subject, groups_of, runners_of, served_labels, stated_labels
from paddock.operate.snapshot.model import Object, Snapshot, name

SETTLES = timedelta(minutes=2)
"""Time that ARC gets to make what follows, before its absence is a fault."""
CRASHES = 3
"""Restarts of a listener before it counts as one that ends again and again."""
_CONTROLLER = {"app.kubernetes.io/part-of": "gha-rs-controller"}
"""Label of the controller's Deployment; its component stands on the pods alone."""
_HELD = ("waiting", "pending", "requested")


def github(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether GitHub's queue gives the job to the scale set."""
    job = subject.job
    if job is None:
        if not snapshot.jobs.known:
            return unread(snapshot.jobs, "waiting jobs")
        served = [job for job in snapshot.jobs if _labels(job) <= stated_labels(snapshot, subject.runner_key)]
        return ok(f"{len(served)} waiting jobs have the labels of {subject.scale_set}")
    title = f"job {job.get('id')}"
    status = str(job.get("status") or "")
    if status == "completed":
        return ok(f"{title} is completed: {job.get('conclusion')}", ends=True)
    if status in _HELD:
        return broken("job-not-released", f"GitHub says of {title}: {status}")
    labels = _labels(job)
    if labels <= served_labels(snapshot, subject.runner_key) | stated_labels(snapshot, subject.runner_key):
        return ok(f"{title} is {status}; {subject.scale_set} has its labels {', '.join(sorted(labels))}")
    lacking = labels - stated_labels(snapshot, subject.runner_key)
    return broken(
        "labels-match-nothing",
        f"{title} runs on [{', '.join(sorted(labels))}]; {subject.scale_set}, the nearest, lacks"
        f" {', '.join(sorted(lacking))}",
    )


def scale_set(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether the scale set is there, registered, and served by a controller."""
    reading, runner_set = snapshot.runner_sets, subject.runner_set
    if not reading.known:
        return unread(reading, "scale sets")
    if reading.absent:
        return broken("arc-not-installed", "the cluster knows no AutoscalingRunnerSet")
    if down := _controller_down(snapshot):
        return down
    if runner_set is None:
        return broken("scale-set-missing", f"no AutoscalingRunnerSet has the name {subject.scale_set}")
    meta, age = runner_set["metadata"], snapshot.age(runner_set)
    if gone := meta.get("deletionTimestamp"):
        return broken("scale-set-deleting", f"{name(runner_set)} is being deleted since {gone}")
    if phase(runner_set) == "Outdated":
        return broken("scale-set-outdated", f"{name(runner_set)} has the phase Outdated")
    if runner_set["spec"].get("maxRunners") == 0:
        return broken("no-room-for-runners", f"{name(runner_set)} has maxRunners 0")
    if not str((meta.get("annotations") or {}).get(SET_ID, "")).isdecimal():
        evidence = f"{name(runner_set)} has no annotation {SET_ID}, {span(age)} after it was made"
        return _not_registered(snapshot, runner_set, evidence) if age > SETTLES else waits(evidence)
    job = subject.job
    if job is not None and job.get("status") == "queued":
        served = served_labels(snapshot, subject.runner_key)
        if lacking := _labels(job) - served:
            return broken(
                "labels-not-applied",
                f"the job asks for {', '.join(sorted(lacking))}: the stack file has it, {name(runner_set)} has"
                f" {', '.join(sorted(served))}",
            )
    return ok(f"{name(runner_set)} is scale set {meta['annotations'][SET_ID]} at GitHub")


def controllers(snapshot: Snapshot) -> list[Object]:
    """Return the Deployments of ARC's controller."""
    found = ((item, item["metadata"].get("labels") or {}) for item in snapshot.deployments)
    return [item for item, labels in found if labels.items() >= _CONTROLLER.items()]


def _not_registered(snapshot: Snapshot, runner_set: Object, evidence: str) -> Outcome:
    meta = runner_set["metadata"]
    names = {"name": str(meta["name"]), "namespace": str(meta["namespace"])}
    found = log_faults.of_controller(snapshot, names["namespace"], names["name"])
    return broken(found.runbook or "scale-set-not-registered", f"{evidence}{found.evidence}", **names)


def _controller_down(snapshot: Snapshot) -> Outcome | None:
    for deployment in controllers(snapshot):
        if not (deployment.get("status") or {}).get("availableReplicas"):
            if snapshot.age(deployment) < SETTLES:
                return waits(f"{name(deployment)} starts")
            said = condition(deployment, "Available").get("message") or condition(deployment, "Progressing").get(
                "message"
            )
            meta = deployment["metadata"]
            evidence = f"{name(deployment)} has no available replica"
            evidence += f": {one_line(str(said))}" if said else f" of {deployment['spec'].get('replicas', 1)}"
            names = {"name": str(meta["name"]), "namespace": str(meta["namespace"])}
            found = log_faults.of_controllers_end(snapshot, names["namespace"])
            return broken(found.runbook or "controller-down", f"{evidence}{found.evidence}", **names)
    return None


def listener(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether a listener takes the scale set's jobs, for the runners that are there."""
    reading, runner_set, item = snapshot.listeners, subject.runner_set, subject.listener
    if not reading.known or runner_set is None:
        return unread(reading, "listeners") if not reading.known else unknown("there is no scale set")
    if item is None:
        return _no_listener(snapshot, subject, runner_set)
    fields, meta = item["spec"], item["metadata"]
    names = {"name": str(meta["name"]), "namespace": str(meta["namespace"])}
    if snapshot.runner_groups.known and not snapshot.runner_groups.absent:
        groups = {group["metadata"]["name"] for group in groups_of(snapshot, runner_set, subject.spec)}
        serves = fields.get("ephemeralRunnerSetName")
        if serves not in groups and snapshot.age(item) > timedelta(seconds=30):
            return broken(
                "listener-stale",
                f"{name(item)} serves EphemeralRunnerSet {serves}, which is gone;"
                f" there is {', '.join(sorted(groups)) or 'none'}",
                **names,
            )
    number = str((runner_set["metadata"].get("annotations") or {}).get(SET_ID, ""))
    if number and str(fields.get("runnerScaleSetId", number)) != number:
        asks = f"{name(item)} asks for scale set {fields['runnerScaleSetId']}"
        return broken("listener-wrong-set", f"{asks}; {name(runner_set)} is {number}", **names)
    if not snapshot.pods.known:
        return unread(snapshot.pods, "the listener's pod")
    place = (meta["namespace"], meta["name"])
    pod = next((p for p in snapshot.pods if (p["metadata"].get("namespace"), p["metadata"]["name"]) == place), None)
    if pod is None:
        young = snapshot.age(item) < SETTLES
        return (
            waits(f"{name(item)} has no pod yet")
            if young
            else broken("listener-no-pod", f"{name(item)} has no pod", **names)
        )
    return _listener_pod(snapshot, subject, pod, names)


def _no_listener(snapshot: Snapshot, subject: Subject, runner_set: Object) -> Outcome:
    evidence = f"no AutoscalingListener is of {name(runner_set)}, {span(snapshot.age(runner_set))} after it was made"
    if snapshot.age(runner_set) < SETTLES:
        return waits(evidence)
    if subject.runner_group is None and phase(runner_set) == "Running":
        return unknown(
            f"{evidence}, nor an EphemeralRunnerSet; yet its phase is Running: another controller serves it?"
        )
    group = subject.runner_group["metadata"]["name"] if subject.runner_group else "NAME"
    return broken(
        "listener-missing",
        evidence,
        namespace=str(runner_set["metadata"]["namespace"]),
        runner_group=str(group),
    )


def _listener_pod(snapshot: Snapshot, subject: Subject, pod: Object, names: dict[str, str]) -> Outcome:
    state, age = phase(pod), snapshot.age(pod)
    for container, reason, message in stuck_containers(pod):
        if reason in PULL_REASONS or reason == "InvalidImageName":
            return broken("listener-image", f"{name(pod)}: {reason}: {message}", **names)
        if reason == "CrashLoopBackOff" or int(container.get("restartCount") or 0) >= CRASHES:
            return _ends(snapshot, subject, pod, f"{name(pod)}: {reason}{_exit(pod)}", names)
    unscheduled = condition(pod, "PodScheduled")
    if unscheduled.get("status") == "False":
        return broken("listener-unschedulable", f"{name(pod)}: {one_line(str(unscheduled.get('message')))}", **names)
    if state in ("Failed", "Succeeded"):
        why = (pod.get("status") or {}).get("reason") or ""
        if why in ("Evicted", "NodeLost", "NodeShutdown", "Terminated", "Preempting"):
            return broken("listener-evicted", f"{name(pod)} has ended: {why}", **names)
        return _ends(snapshot, subject, pod, f"{name(pod)} has ended{_exit(pod)}", names)
    if restarts(pod) >= CRASHES and not ready(pod):
        return _ends(snapshot, subject, pod, f"{name(pod)} was restarted {restarts(pod)} times{_exit(pod)}", names)
    if state != "Running":
        if age < SETTLES:
            return waits(f"{name(pod)} starts since {span(age)}")
        event = latest(snapshot, pod, "Failed", "FailedMount", "FailedCreatePodSandBox", "BackOff")
        return unknown(
            f"{name(pod)} is {state or 'without phase'} for {span(age)}; {text(event) or 'no event says why'}"
        )
    node = next((n for n in snapshot.nodes if n["metadata"]["name"] == pod["spec"].get("nodeName")), None)
    if node is not None and not ready(node):
        return broken("listener-evicted", f"{name(pod)} is on {name(node)}, which is not ready", **names)
    return ok(f"{name(pod)} runs since {span(age)}")


def _ends(snapshot: Snapshot, subject: Subject, pod: Object, evidence: str, names: dict[str, str]) -> Outcome:
    """Return why a listener ends again and again, as far as its log names a known reason."""
    found = log_faults.of_listener(snapshot, pod)
    of_set = (subject.runner_set or {"metadata": {}})["metadata"]
    names = {**names, "set": str(of_set.get("name")), "runners": str(of_set.get("namespace"))}
    return broken(found.runbook or "listener-crashing", f"{evidence}{found.evidence}", **names)


def _exit(pod: Object) -> str:
    ended = next((terminated(container) for container in containers(pod) if terminated(container)), None)
    if not ended:
        return ""
    return f", exit code {ended.get('exitCode')} ({ended.get('reason') or 'no reason'})"


def runner(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether ARC has a runner for the work, and GitHub may use it."""
    item, reading = subject.runner, snapshot.runners
    if item is None:
        if subject.pod is not None:
            return ok("its pod is there")
        if not reading.known:
            return unread(reading, "runners")
        return _no_runner(snapshot, subject)
    status = item.get("status") or {}
    meta = item["metadata"]
    names = {"name": str(meta["name"]), "namespace": str(meta["namespace"])}
    full = _failed_fill(snapshot, subject)
    if status.get("phase") == "Outdated":
        return broken("runner-outdated", f"{name(item)} has the phase Outdated", **names)
    if full and status.get("phase") == "Failed" and subject.pod is None:
        return full
    if status.get("phase") == "Failed" and subject.pod is None and status.get("reason") != "InvalidPod":
        said = one_line(f"{status.get('reason') or 'no reason'}: {status.get('message') or 'no message'}")
        return broken("runner-failed", f"{name(item)} has failed: {said}", **names)
    if subject.job is not None and subject.job.get("status") == "queued" and _busy(snapshot, subject):
        return broken("all-runners-busy", _places(snapshot, subject))
    work = status.get("jobDisplayName") or status.get("jobId")
    return ok(f"{name(item)} {f'has the job {work}' if work else f'was made {span(snapshot.age(item))} ago'}")


def _no_runner(snapshot: Snapshot, subject: Subject) -> Outcome:
    desired = int(((subject.runner_group or {}).get("spec") or {}).get("replicas") or 0)
    queued = subject.job is not None and subject.job.get("status") == "queued"
    if desired:
        return waits(f"{desired} runners are asked for, and ARC has made none yet")
    if queued and subject.job is not None:
        waited = snapshot.since(subject.job.get("created_at"))
        if waited > SETTLES:
            return unknown(
                f"the job waits for {span(waited)}, and the listener asks for no runner: its session may be dead, or"
                f" the runner group may not admit the repository",
                "kubectl -n arc-systems logs the listener; the runner group's repositories in GitHub's settings",
            )
        return waits(f"the job waits for {span(waited)}; the listener has not asked for a runner yet")
    if snapshot.runner_groups.known:
        return ok("no runner is asked for", ends=True)
    return unread(snapshot.runner_groups, "runners that are asked for")


def _failed_fill(snapshot: Snapshot, subject: Subject) -> Outcome | None:
    most = (subject.runner_set or {"spec": {}})["spec"].get("maxRunners")
    own = runners_of(snapshot, subject.runner_key)
    failed = [item for item in own if phase(item) == "Failed"]
    if most is None or len(own) < int(most) or len(failed) < len(own):
        return None
    meta = failed[0]["metadata"]
    return broken(
        "failed-runners-fill-set",
        f"{len(failed)} of {len(own)} runners have failed, and max is {most}",
        namespace=str(meta["namespace"]),
        failed=" ".join(str(item["metadata"]["name"]) for item in failed),
    )


def _busy(snapshot: Snapshot, subject: Subject) -> bool:
    most = (subject.runner_set or {"spec": {}})["spec"].get("maxRunners")
    own = runners_of(snapshot, subject.runner_key)
    at_work = [item for item in own if (item.get("status") or {}).get("jobId") and phase(item) == "Running"]
    return most is not None and len(at_work) >= int(most)


def _places(snapshot: Snapshot, subject: Subject) -> str:
    most = (subject.runner_set or {"spec": {}})["spec"].get("maxRunners")
    return f"{len(runners_of(snapshot, subject.runner_key))} runners have a job, and max is {most}"


def _labels(job: Object) -> set[str]:
    return {str(label).lower() for label in job.get("labels") or []}
