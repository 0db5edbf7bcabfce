"""The scale set, its controller and its listener: the links that Actions Runner Controller holds.

As ARC 0.14.2 does it: a listener's pod is never restarted, but deleted when it ends and recreated.
"""

from __future__ import annotations

from datetime import timedelta

from paddock.errors import one_line
from paddock.labels import DRAINED
from paddock.operate.snapshot.model import Object, Snapshot, changed, name
from paddock.operate.why.links import log_faults
from paddock.operate.why.links.evidence import SETTLES, condition, phase, span, unavailable_for
from paddock.operate.why.links.listener_pod import listener_pod, without_pod
from paddock.operate.why.objects import (
    SET_ID,
    annotations_of,
    groups_of,
    key_of,
    labels_of,
    requested_labels,
    served_labels,
    set_name,
)
from paddock.operate.why.outcome import Outcome, broken, ok, unknown, unread, waits
from paddock.operate.why.subject import Subject

_CONTROLLER = {"app.kubernetes.io/part-of": "gha-rs-controller"}
"""Label of the controller's Deployment; its component is on the pods alone."""
_CONTROLLER_IMAGE = "gha-runner-scale-set-controller"


def scale_set(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether the scale set is there, registered, and served by a controller."""
    reading, runner_set = snapshot.runner_sets, subject.runner_set
    if not reading.known:
        return unread(reading, "scale sets")
    if reading.absent:
        return broken("arc-not-installed", "the cluster knows no AutoscalingRunnerSet")
    if outcome := _controller(snapshot):
        return outcome
    if runner_set is None:
        return broken("scale-set-missing", f"no AutoscalingRunnerSet has the name {subject.scale_set}")
    meta = runner_set["metadata"]
    if gone := meta.get("deletionTimestamp"):
        return broken("scale-set-deleting", f"{name(runner_set)} has been terminating for {gone}")
    if phase(runner_set) == "Outdated":
        return broken("scale-set-outdated", f"{name(runner_set)} has the phase Outdated")
    if runner_set["spec"].get("maxRunners") == 0:
        if note := annotations_of(runner_set).get(DRAINED):
            return broken("drained", f"{name(runner_set)} is drained: {one_line(note)}", runner=subject.runner_key)
        return broken("no-room-for-runners", f"{name(runner_set)} has maxRunners 0")
    number = annotations_of(runner_set).get(SET_ID, "")
    if not number.isdecimal():
        return _unregistered(snapshot, runner_set)
    if subject.queued and (outcome := _labels_differ(snapshot, subject, runner_set)):
        return outcome
    return ok(f"{name(runner_set)} is scale set {number} at GitHub")


def controllers(snapshot: Snapshot) -> list[Object]:
    """Return the Deployments of ARC's controller."""
    return [item for item in snapshot.deployments if labels_of(item).items() >= _CONTROLLER.items()]


def _controller(snapshot: Snapshot) -> Outcome | None:
    """Return what is wrong with the controller; None where one is available, or Deployments are not known."""
    if not snapshot.deployments.known:
        return None
    deployments = controllers(snapshot) or [item for item in snapshot.deployments if _CONTROLLER_IMAGE in _image(item)]
    if not deployments:
        return broken("controller-missing", "no Deployment is part of gha-rs-controller")
    down = [(item, since) for item in deployments if (since := unavailable_for(snapshot, item)) is not None]
    if len(down) < len(deployments):
        return None
    deployment, since = down[0]
    if since < SETTLES:
        return waits(f"{name(deployment)} starts")
    message = condition(deployment, "Available").get("message") or condition(deployment, "Progressing").get("message")
    evidence = f"{name(deployment)} has no available replica"
    evidence += f": {one_line(str(message))}" if message else f" of {deployment['spec'].get('replicas', 1)}"
    namespace, own = key_of(deployment)
    reason = log_faults.of_controllers_end(snapshot, namespace)
    return broken(reason.runbook or "controller-down", f"{evidence}{reason.evidence}", name=own, namespace=namespace)


def _image(deployment: Object) -> str:
    """Return the image of a Deployment's first container."""
    return str(deployment["spec"]["template"]["spec"]["containers"][0].get("image") or "")


def _unregistered(snapshot: Snapshot, runner_set: Object) -> Outcome:
    age = snapshot.age(runner_set)
    evidence = f"{name(runner_set)} has no annotation {SET_ID}, {span(age)} after it was made"
    if age <= SETTLES:
        return waits(evidence)
    if not snapshot.deployments.known:
        return unread(snapshot.deployments, f"{evidence}; its controller")
    namespace, own = key_of(runner_set)
    reason = log_faults.of_controller(snapshot, namespace, own)
    github, runbook = snapshot.fleet.github, reason.runbook or "scale-set-not-registered"
    if github.kind == "server" and not reason.runbook:
        runbook = "server-refuses-scale-set"
        evidence += f"; {github.host} is GitHub Enterprise Server {github.server_version}"
    return broken(runbook, f"{evidence}{reason.evidence}", name=own, namespace=namespace)


def _labels_differ(snapshot: Snapshot, subject: Subject, runner_set: Object) -> Outcome | None:
    """Return what keeps GitHub from matching a queued job, where the stack file has its labels."""
    assert subject.job is not None  # noqa: S101 - a queued job is one
    requested, served = requested_labels(subject.job), served_labels(snapshot, subject.runner_key)
    if lacking := requested - served:
        return broken(
            "labels-not-applied",
            f"the job asks for {', '.join(sorted(lacking))}: the stack file has it, {name(runner_set)} has"
            f" {', '.join(sorted(served))}",
        )
    own = set_name(runner_set).lower()
    for runner in snapshot.github_runners:
        has = {str(label.get("name")).lower() for label in runner.get("labels") or []}
        # Only of a runner that GitHub lists with its set's name are all labels known.
        if own in has and (lacking := requested - has):
            return broken(
                "labels-not-registered",
                f"{name(runner_set)} has {', '.join(sorted(lacking))}; GitHub has {', '.join(sorted(has))} of its"
                f" runner {runner.get('name')}",
                runner=subject.runner_key,
            )
    return None


def listener(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether a listener takes the scale set's jobs, for the runners that are there."""
    reading, runner_set, item = snapshot.listeners, subject.runner_set, subject.listener
    if not reading.known or runner_set is None:
        return unread(reading, "listeners") if not reading.known else unknown("there is no scale set")
    if item is None:
        if not str(annotations_of(runner_set).get(SET_ID, "")).isdecimal():
            return unknown(f"{name(runner_set)} is not registered, so it has no listener yet")
        return _no_listener(snapshot, subject, runner_set)
    fields, (namespace, own) = item["spec"], key_of(item)
    names = {"name": own, "namespace": namespace}
    if gone := item["metadata"].get("deletionTimestamp"):
        evidence = f"{name(item)} has been terminating for {span(snapshot.since(gone))}"
        overdue = snapshot.since(gone) > SETTLES  # its pod may take a minute to end
        return broken("listener-stuck", evidence, **names) if overdue else waits(evidence)
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
    number = str(annotations_of(runner_set).get(SET_ID, ""))
    if number and str(fields.get("runnerScaleSetId", number)) != number:
        asks = f"{name(item)} asks for scale set {fields['runnerScaleSetId']}"
        return broken("listener-wrong-set", f"{asks}; {name(runner_set)} is {number}", **names)
    if not snapshot.pods.known:
        return unread(snapshot.pods, "the listener's pod")
    pod = next((candidate for candidate in snapshot.pods if key_of(candidate) == (namespace, own)), None)
    outcome = without_pod(snapshot, item, names) if pod is None else listener_pod(snapshot, item, pod, names)
    return _crashing(snapshot, item, runner_set, outcome) if outcome.runbook == "listener-crashing" else outcome


def _crashing(snapshot: Snapshot, listener: Object, runner_set: Object, outcome: Outcome) -> Outcome:
    """Return why a listener ends again and again, as far as its log or its image says."""
    reason = log_faults.of_listener(snapshot, *key_of(listener))
    namespace, own = key_of(runner_set)
    names = {**outcome.names, "set": own, "runners": namespace}
    evidence = f"{outcome.evidence}{reason.evidence}"
    if not reason.runbook and (differs := old_image(snapshot, listener)):
        return broken("listener-image-old", f"{evidence}; {differs}", **names)
    return broken(reason.runbook or "listener-crashing", evidence, **names)


def old_image(snapshot: Snapshot, listener: Object) -> str:
    """Return that a listener is of another image than the controller, as an upgrade of the controller leaves it."""
    own = str(listener["spec"].get("image") or "")
    images = {_image(item) for item in controllers(snapshot)}
    if not own or not images or own in images:
        return ""
    return f"its image is {own}, the controller's {', '.join(sorted(images))}"


def _no_listener(snapshot: Snapshot, subject: Subject, runner_set: Object) -> Outcome:
    since = snapshot.since(changed(runner_set))
    evidence = f"no AutoscalingListener belongs to {name(runner_set)}, {span(since)} after that was last changed"
    # ARC takes the listener away and makes another after each change of a set.
    if since < SETTLES:
        return waits(evidence)
    if subject.runner_group is None and phase(runner_set) == "Running":
        return unknown(
            f"{evidence}, nor an EphemeralRunnerSet; yet its phase is Running: another controller serves it?"
        )
    group = subject.runner_group["metadata"]["name"] if subject.runner_group else "NAME"
    namespace = str(runner_set["metadata"]["namespace"])
    return broken("listener-missing", evidence, namespace=namespace, runner_group=str(group))
