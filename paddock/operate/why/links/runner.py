"""The EphemeralRunner: whether ARC has one for the work, and GitHub may use it."""

from __future__ import annotations

from dataclasses import replace

from paddock.errors import one_line
from paddock.fleet.arc import controller
from paddock.operate.snapshot.model import Object, Snapshot, changed, name
from paddock.operate.why.choice import busy
from paddock.operate.why.links.arc import old_image
from paddock.operate.why.links.evidence import SETTLES, phase, span, text
from paddock.operate.why.objects import key_of, runners_of, work_of
from paddock.operate.why.outcome import Outcome, broken, ok, unknown, unread, waits
from paddock.operate.why.subject import Subject


def runner(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether ARC has a runner for the work, and GitHub may use it."""
    item, reading = subject.runner, snapshot.runners
    if subject.lost:
        return _lost(snapshot, subject)
    if item is None:
        if subject.pod is not None:
            return ok("its pod is there")
        if not reading.known:
            return unread(reading, "runners")
        return _no_runner(snapshot, subject)
    status = item.get("status") or {}
    namespace, own = key_of(item)
    names = {"name": own, "namespace": namespace}
    evidence = one_line(f"{status.get('reason') or 'no reason'}: {status.get('message') or 'no message'}")
    if phase(item) == "Outdated":
        return broken("runner-outdated", f"{name(item)} has the phase Outdated", **names)
    if phase(item) == "Failed" and subject.pod is None:
        if full := _failed_fill(snapshot, subject, evidence):
            return full
        if status.get("reason") != "InvalidPod":
            return broken("runner-failed", f"{name(item)} has failed: {evidence}", **names)
    work = work_of(item)
    return ok(f"{name(item)} {f'has the job {work}' if work else f'was made {span(snapshot.age(item))} ago'}")


def _lost(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge a job that GitHub counts as running on a runner that is not there."""
    if not snapshot.pods.known:
        return unread(snapshot.pods, f"the pod of {subject.lost}")
    namespace = key_of(subject.runner_set)[0] if subject.runner_set else ""
    events = snapshot.events_named({"kind": "Pod", "metadata": {"namespace": namespace, "name": subject.lost}})
    last = f"; its pod's last event: {text(events[-1])}" if events else ""
    evidence = f"GitHub says that the job runs on {subject.lost}, and no EphemeralRunner or pod has that name{last}"
    # A runner that has just done its job is gone a moment before GitHub says so.
    return replace(broken("runner-gone", evidence, name=subject.lost), passing=snapshot.earlier is None)


def _no_runner(snapshot: Snapshot, subject: Subject) -> Outcome:
    own = runners_of(snapshot, subject.runner_key)
    at_work = [item for item in own if busy(snapshot, item)]
    desired = int(((subject.runner_group or {}).get("spec") or {}).get("replicas") or 0)
    most = (subject.runner_set or {"spec": {}})["spec"].get("maxRunners")
    if subject.queued and most is not None and len(at_work) >= int(most):
        return broken("all-runners-busy", f"{len(at_work)} runners have a job, and max is {most}")
    if desired > len(own) and subject.runner_group is not None:
        # The listener's request is the last change of the EphemeralRunnerSet.
        since = snapshot.since(changed(subject.runner_group))
        evidence = f"{desired} runners have been requested for {span(since)}, and ARC has made {len(own)}"
        return waits(evidence) if since < SETTLES else unknown(evidence, controller(snapshot.fleet, subject.spec).log)
    if subject.job is not None and subject.queued:
        return _unasked(snapshot, subject, subject.job, at_work)
    if snapshot.runner_groups.known:
        return ok("no runner is requested", ends=True)
    return unread(snapshot.runner_groups, "requested runners")


def _unasked(snapshot: Snapshot, subject: Subject, job: Object, at_work: list[Object]) -> Outcome:
    """Judge a queued job for which the listener requests no runner."""
    waited = snapshot.since(job.get("created_at"), "github")
    beside = f" besides the {len(at_work)} with other jobs" if at_work else ""
    if waited <= SETTLES:
        return waits(f"the job waits for {span(waited)}; the listener has not requested a runner yet{beside}")
    listener = subject.listener
    differs = old_image(snapshot, listener) if listener is not None else ""
    also = f"; of the listener: {differs}" if differs else ""
    if snapshot.fleet.github.kind == "server":
        also += f"; GitHub Enterprise Server {snapshot.fleet.github.server_version} may not work with this ARC"
    namespace, own = (
        key_of(listener) if listener is not None else (controller(snapshot.fleet, subject.spec).namespace, "LISTENER")
    )
    group = snapshot.admissions
    admitted = "" if group.known else f", or the runner group may not admit the repository ({group.reason})"
    return replace(
        unknown(
            f"the job waits for {span(waited)}, and the listener requests no runner{beside}: its session may be dead,"
            f" GitHub may have other labels for the set{admitted}{also}",
            f"kubectl -n {namespace} logs {own} --tail 50{f'; {group.fix}' if group.fix else ''}",
        ),
        permission=group.permission,
    )


def _failed_fill(snapshot: Snapshot, subject: Subject, evidence: str) -> Outcome | None:
    """Return the outcome where failed runners, with those at work, take every place: ARC counts each of them."""
    most = (subject.runner_set or {"spec": {}})["spec"].get("maxRunners")
    own = runners_of(snapshot, subject.runner_key)
    failed = [item for item in own if phase(item) == "Failed"]
    free = [item for item in own if item not in failed and not busy(snapshot, item)]
    if most is None or len(own) < max(int(most), 2) or free:
        return None
    return broken(
        "failed-runners-fill-set",
        f"{len(failed)} of {len(own)} runners have failed, and max is {most}; {evidence}",
        namespace=key_of(failed[0])[0],
        failed=" ".join(key_of(item)[1] for item in failed),
    )
