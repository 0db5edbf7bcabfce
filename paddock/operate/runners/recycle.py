"""Deletion of what is stuck, so that ARC's controller makes it anew: listeners, and runners that failed."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.operate.chain.links import arc
from paddock.operate.chain.subject import OF_RUNNER, runners_of, subject
from paddock.operate.runners.drain import Scope, Writer, known, sets, title
from paddock.operate.runners.report import Step
from paddock.operate.snapshot.model import Object, Snapshot, name
from paddock.operate.sources.kubernetes_changes import Changed
from paddock.operate.sources.unavailable import NotFound, Unavailable

PARTS = ("runner_sets", "listeners", "runner_groups", "runners", "pods", "nodes", "deployments")
_MENDED = ("listener-stale", "listener-wrong-set", "listener-no-pod", "listener-evicted")
"""Faults of a listener that end with a new one. One that GitHub refuses is refused again."""
_STOPS = ("controller-down", "arc-not-installed", "scale-set-missing", "scale-set-deleting")
"""Faults with which nothing that is deleted comes back."""


def recycle(snapshot: Snapshot, scope: Scope, writer: Writer | None) -> Iterator[Step]:
    """Delete stuck listeners and failed runners; without a writer say what would be deleted. Raises Unavailable."""
    sets(snapshot, scope)
    known(snapshot.runners, "runners")
    known(snapshot.pods, "pods")
    known(snapshot.listeners, "listeners")
    for key in scope.runners:
        walked = subject(snapshot, key)
        verdict = arc.scale_set(snapshot, walked)
        if verdict.status == "broken" and verdict.runbook in _STOPS:
            yield Step(
                object=f"scale set {walked.scale_set}",
                state="skipped",
                message=f"nothing is deleted, since nothing would come back: {verdict.evidence}",
                fix="./inv why",
            )
            continue
        judged = arc.listener(snapshot, walked)
        if judged.status == "broken" and judged.runbook in _MENDED and walked.listener is not None:
            yield _deleted(writer, walked.listener, judged.evidence)
        elif judged.status in ("broken", "unknown"):
            about = title(walked.listener) if walked.listener else f"scale set {walked.scale_set}"
            yield Step(object=about, state="skipped", message=f"a new one mends nothing: {judged.evidence}", fix=_WHY)
        for runner in runners_of(snapshot, key):
            status = runner.get("status") or {}
            if status.get("phase") != "Failed":
                continue
            if active := _active(snapshot, runner):
                outcome = f"has failed, and stays: {title(active)} still runs"
                yield Step(object=title(runner), state="skipped", message=outcome)
                continue
            reason = status.get("reason") or "no reason"
            yield _deleted(writer, runner, f"has failed: {reason}: {status.get('message') or 'no message'}")


_WHY = "./inv why"


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


def _deleted(writer: Writer | None, item: Object, evidence: str) -> Step:
    if gone := item["metadata"].get("deletionTimestamp"):
        return Step(object=title(item), state="unchanged", message=f"{name(item)} is being deleted since {gone}")
    if writer is None:
        return Step(object=title(item), state="planned", message=f"would be deleted: {evidence}")
    try:
        writer.delete(item)
    except NotFound:
        return Step(object=title(item), state="unchanged", message="was gone already")
    except Changed as error:
        return Step(object=title(item), state="skipped", message=f"is not deleted: {error}", fix=error.fix)
    except Unavailable as error:
        return Step(object=title(item), state="failed", message=str(error), fix=error.fix)
    return Step(object=title(item), state="done", message=f"deleted: {evidence}")
