"""GitHub's queue: whether it gives the job to the scale set."""

from __future__ import annotations

from paddock.operate.chain.objects import makes, requested_labels, serves, stated_labels
from paddock.operate.chain.outcome import Outcome, broken, ok, unread
from paddock.operate.chain.subject import Subject
from paddock.operate.snapshot.model import Snapshot

_HELD = ("waiting", "pending", "requested")


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
        return ok(f"{title} is {status}; {subject.scale_set} has its labels {', '.join(sorted(labels))}")
    lacking = labels - stated_labels(snapshot, subject.runner_key)
    return broken(
        "labels-match-nothing",
        f"{title} runs on [{', '.join(sorted(labels))}]; {subject.scale_set}, the nearest, lacks"
        f" {', '.join(sorted(lacking))}",
    )
