"""Hook after the last step of a job: end its leftover GPU processes, report its GPU use, and clean up."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.gpu.host.bounded import Broken, NoAnswer, within
from paddock.gpu.host.processes import this_host
from paddock.gpu.job_hooks import ccache, leftovers, log, record, sampling, wipe
from paddock.gpu.job_hooks.admission import gibibytes, in_use, own
from paddock.gpu.job_hooks.environment import PodJob
from paddock.gpu.job_hooks.report import JobUsage, markdown
from paddock.gpu.job_hooks.sampling import Stopped

_READ_SECONDS = 1.5
_WIPE_SECONDS = 1.5
"""Seconds, each twice, and 0.7 to kill each late read. With 3.5 for the sampler, 5.5 for leftovers and 1 for ccache all
limits together are 17.4 of the 19 that the script gives."""
_MOST_WARNINGS = 9
"""GitHub shows ten warnings of a step."""


def run(*, environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> None:
    """Run the hook. Errors are raised; they do not change the job's result."""
    job = PodJob.from_environ(environ)
    if not job.gpus:
        return
    # Processes first: whatever fails further down, the GPU is free.
    stopped, ended_at = sampling.stop(job.folder), this_host().clock()
    notes = [*_end_leftovers(job, root, started_with_driver=stopped is not None)]
    for text in notes:
        log.warning("GPU after the job", text)
    if stopped:  # a refused job had no sampler
        text = markdown(replace(_usage(job, stopped, ended_at), compilations=ccache.since(job.folder), notes=notes))
        log.group("GPU use of this job", text.splitlines())
        log.append_summary(job.summary, text)
    for name, wiped in (
        ("/dev/shm", wipe.shared_memory(job, _WIPE_SECONDS, root)),  # noqa: S108 - the path every program knows
        ("the runner's temporary files", wipe.temporary(job.temp, job.folder, _WIPE_SECONDS)),
    ):
        if wiped and (wiped.files or wiped.remaining):
            remaining = f"; {wiped.remaining} could not be removed ({wiped.why})" if wiped.remaining else ""
            log.info(f"Wiped {name}: {wiped.files} files, {gibibytes(wiped.size / (1 << 20))}{remaining}")


def _usage(job: PodJob, stopped: Stopped, ended_at: float) -> JobUsage:
    """Return what the sampler recorded of a job that ended at that time of the clock since boot."""
    recorded = record.read(job.folder)
    if recorded is None:
        return JobUsage(None, job.shared, why=stopped.why or "the sampler wrote nothing")
    missing = ended_at - recorded.ended
    if not stopped.early or recorded.summary.ended or missing < 1:
        return JobUsage(recorded, job.shared)
    return JobUsage(recorded, job.shared, missing, f"the sampler had ended ({stopped.why})")


def _end_leftovers(job: PodJob, root: Path, *, started_with_driver: bool) -> Iterator[str]:
    """End the job's processes on GPUs and yield the results and what remains; a driver that does not answer is reported
    only if the job began with one."""
    try:
        before = within(_READ_SECONDS, lambda: _read_gpus(job, root))
    except (NoAnswer, Broken):
        before = None
    remaining = leftovers.find(before["processes"] if before else {}, job.tracking, root)
    ended = leftovers.end(remaining, root=root)
    yield from map(str, ended[:_MOST_WARNINGS])
    if more := len(ended[_MOST_WARNINGS:]):
        yield f"and {more} processes more"
    driver_problem = "it hangs" if before is None else before["gone"]
    if driver_problem and started_with_driver:
        yield f"the GPU driver does not answer any more: {driver_problem}"
    if driver_problem or before is None or job.shared or not before["in_use"]:
        return
    try:
        after = within(_READ_SECONDS, lambda: _read_gpus(job, root))["in_use"]
    except (NoAnswer, Broken):
        return
    for name, mebibytes in after:
        yield f"{name}: {gibibytes(mebibytes)} of its memory is still in use, by what this runner cannot see or end"


def _read_gpus(job: PodJob, root: Path) -> dict[str, Any]:
    from paddock.gpu import inventory as detect

    inventory = own(detect.inventory(processes=True, root=root), job)
    memory_by_pid: dict[int, int | None] = {}
    for process in (process for gpu in inventory.gpus for process in gpu.processes or ()):
        before = memory_by_pid.get(process.pid)
        memory_by_pid[process.pid] = process.memory if before is None else before + (process.memory or 0)
    return {
        "processes": memory_by_pid,
        "in_use": list(in_use(inventory)),
        "gone": "" if inventory.gpus else inventory.reason,
    }
