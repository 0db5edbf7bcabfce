"""GitHub's queue: whether it gives the job to the scale set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.fleet import Fleet
from paddock.operate.inventory.admission import group_of
from paddock.operate.snapshot.model import Object, Snapshot
from paddock.operate.why.objects import makes, requested_labels, serves, stated_labels
from paddock.operate.why.outcome import Outcome, broken, ok, unread
from paddock.operate.why.subject import Subject

_HELD = ("waiting", "pending", "requested")
_SAYS = {
    "public": ("group-refuses-public", "is of a public repository, and runner group {group} admits none"),
    "repository": ("group-refuses-repository", "is of {repository}, which runner group {group} is not open to"),
    "workflow": ("group-refuses-workflow", "comes from {workflow}, and runner group {group} admits other workflows"),
    "elsewhere": ("group-of-another-owner", "is of {repository}, and the runners register at {url}"),
    "missing": ("scale-set-group-missing", "waits for runner group {group}, which is not at {url}"),
}
"""Runbook of each refusal, and what is so of the job."""


def github(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether GitHub's queue gives the job to the scale set."""
    job = subject.job
    if job is None:
        if not snapshot.jobs.known:
            return unread(snapshot.jobs, "waiting jobs")
        own = stated_labels(snapshot, subject.runner_key)
        served = [job for job in snapshot.jobs if job.get("status") == "queued" and requested_labels(job) <= own]
        return ok(f"{len(served)} waiting jobs have the labels of {subject.scale_set}")
    title, status = f"job {job.get('id')}", str(job.get("status") or "")
    if status == "completed":
        on = f" on {job['runner_name']}" if job.get("runner_name") else ""
        return ok(f"{title} is completed{on}: {job.get('conclusion')}", then="job")
    if status in _HELD:
        return broken("job-not-released", f"GitHub says of {title}: {status}")
    if status == "in_progress":
        if subject.lost and not makes(snapshot, subject.runner_key, subject.lost):
            return ok(f"{title} runs on {subject.lost}, which no scale set of this stack made", ends=True)
        return ok(f"{title} runs on {job.get('runner_name')}", then="runner")
    labels = requested_labels(job)
    if serves(snapshot, subject.runner_key, job):
        group = group_of(snapshot.fleet, subject.spec)
        if refused := next((one for one in snapshot.admissions if one["group"] == group and _refuses(one)), None):
            return refusal(snapshot.fleet, title, refused)
        return ok(f"{title} is {status}; {subject.scale_set} has its labels {', '.join(sorted(labels))}")
    lacking = labels - stated_labels(snapshot, subject.runner_key)
    return broken(
        "labels-match-nothing",
        f"{title} runs on [{', '.join(sorted(labels))}]; {subject.scale_set}, the nearest, lacks"
        f" {', '.join(sorted(lacking))}",
    )


def _refuses(admission: Object) -> bool:
    """Return whether a group does not take the job. Of one that is missing the link of the scale set says so."""
    return admission["refused"] not in ("", "missing")


def refusal(fleet: Fleet, title: str, admission: Mapping[str, Any]) -> Outcome:
    """Return the broken link of a job, `title`, that a group does not admit."""
    runbook, says = _SAYS[admission["refused"]]
    names = {key: str(value) for key, value in admission.items()} | {
        "owner": str(admission["repository"]).partition("/")[0],
        "url": fleet.github.url,
        "host": fleet.github.host,
    }
    return broken(runbook, f"{title} {says.format_map(names)}", **names)
