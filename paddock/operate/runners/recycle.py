"""`runners.recycle`: stuck listeners and failed runners are deleted, and ARC's controller makes new ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.operate.parameters import Declined
from paddock.operate.runners.change import OfRunners, change
from paddock.operate.runners.draining import Scope, Writer, known, sets, title
from paddock.operate.runners.report import Change, RunnersChanged
from paddock.operate.snapshot.model import Object, Snapshot, name
from paddock.operate.sources.kubernetes import Changed
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.operate.why.links import arc
from paddock.operate.why.subject import OF_RUNNER, runners_of, subject

PARTS = ("runner_sets", "listeners", "runner_groups", "runners", "pods", "nodes", "deployments")
_MENDED = ("listener-stale", "listener-wrong-set", "listener-no-pod", "listener-evicted")
"""Faults of a listener that end with a new one. One that GitHub refuses is refused again."""
_STOPS = ("controller-down", "controller-missing", "arc-not-installed", "scale-set-missing", "scale-set-deleting")
"""Faults with which nothing that is deleted comes back."""
_WHY = "./inv why"


@dataclass(frozen=True, kw_only=True)
class Recycle(OfRunners):
    """Parameters of `runners.recycle`."""

    dry_run: bool = parameter(False, "show what would be deleted, and delete nothing")


@command()
def recycle(parameters: Recycle) -> RunnersChanged | Declined:
    """Delete stuck listeners and failed runners. Raises FleetError, BadFlag, NoCluster and Refused."""

    def act(snapshot: Snapshot, scope: Scope, writer: Writer) -> Iterator[Change]:
        return recycled(snapshot, scope, None if parameters.dry_run else writer)

    return change("recycle", parameters, act, PARTS, ask=not parameters.dry_run)


def recycled(snapshot: Snapshot, scope: Scope, writer: Writer | None) -> Iterator[Change]:
    """Delete stuck listeners and failed runners; without a writer say what would be deleted. Raises Unavailable."""
    sets(snapshot, scope)
    known(snapshot.runners, "runners")
    known(snapshot.pods, "pods")
    known(snapshot.listeners, "listeners")
    known(snapshot.deployments, "Deployments, among them ARC's controller")
    for key in scope.runners:
        walked = subject(snapshot, key)
        verdict = arc.scale_set(snapshot, walked)
        if verdict.status == "broken" and verdict.runbook in _STOPS:
            yield Change(
                object=f"scale set {walked.scale_set}",
                state="skipped",
                message=f"nothing is deleted, since nothing would come back: {verdict.evidence}",
                fix=_WHY,
            )
            continue
        judged = arc.listener(snapshot, walked)
        if judged.status == "broken" and judged.runbook in _MENDED and walked.listener is not None:
            yield _deleted(writer, walked.listener, judged.evidence)
        elif judged.status in ("broken", "unknown"):
            about = title(walked.listener) if walked.listener else f"scale set {walked.scale_set}"
            yield Change(
                object=about, state="skipped", message=f"a new one would not help: {judged.evidence}", fix=_WHY
            )
        for runner in runners_of(snapshot, key):
            status = runner.get("status") or {}
            if status.get("phase") != "Failed":
                continue
            if active := _active(snapshot, runner):
                outcome = f"has failed, and stays: {title(active)} still runs"
                yield Change(object=title(runner), state="skipped", message=outcome)
                continue
            reason = status.get("reason") or "no reason"
            yield _deleted(writer, runner, f"has failed: {reason}: {status.get('message') or 'no message'}")


def _active(snapshot: Snapshot, runner: Object) -> Object | None:
    """Return a pod of a runner, or of its job, that has not ended."""
    meta = runner["metadata"]
    for pod in snapshot.pods:
        own = pod["metadata"]
        named = meta["name"] in (own["name"], (own.get("labels") or {}).get(OF_RUNNER))
        over = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
        if named and own.get("namespace") == meta.get("namespace") and not over:
            return pod
    return None


def _deleted(writer: Writer | None, item: Object, evidence: str) -> Change:
    if gone := item["metadata"].get("deletionTimestamp"):
        return Change(object=title(item), state="unchanged", message=f"{name(item)} has been terminating since {gone}")
    if writer is None:
        return Change(object=title(item), state="planned", message=f"would be deleted: {evidence}")
    try:
        writer.delete(item)
    except NotFound:
        return Change(object=title(item), state="unchanged", message="had already gone")
    except Changed as error:
        return Change(object=title(item), state="skipped", message=f"is not deleted: {error}", fix=error.fix)
    except Unavailable as error:
        return Change(object=title(item), state="failed", message=str(error), fix=error.fix)
    return Change(object=title(item), state="done", message=f"deleted: {evidence}")
