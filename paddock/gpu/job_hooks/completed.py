"""After the last step of a job: ends what it left on its GPUs, tells what it made of them, and cleans up."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.gpu.host.processes import this_host
from paddock.gpu.job_hooks import ccache, leftovers, log, record, sampling, wipe
from paddock.gpu.job_hooks.admission import gibibytes, in_use, own
from paddock.gpu.job_hooks.bounded import Broken, NoAnswer, within
from paddock.gpu.job_hooks.environment import Job
from paddock.gpu.job_hooks.report import Told, markdown
from paddock.gpu.job_hooks.sampling import Stopped

_LOOK = 1.5
_WIPE = 1.5
"""Seconds, each twice, and 0.7 to kill each look that is late. With 3.5 for the sampler, 5.5 for leftovers and 1 for
ccache all bounds together are 17.4 of the 19 that the script gives."""
_TOLD = 9
"""Leftover processes: GitHub shows ten warnings of a step."""


def run(*, environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> None:
    """Raises what fails; the job's result stands whatever happens here."""
    job = Job.of(environ)
    if not job.gpus:
        return
    # Its processes before all else: whatever fails further down, the GPU is free.
    stopped, over = sampling.stop(job.folder), this_host().clock()
    notes = [*_ended(job, root, began=stopped is not None)]
    for text in notes:
        log.warning("GPU after the job", text)
    if stopped:  # none had a job that was refused
        text = markdown(replace(_use(job, stopped, over), compilations=ccache.since(job.folder), notes=notes))
        log.group("GPU use of this job", text.splitlines())
        log.page(job.summary, text)
    for name, wiped in (
        ("/dev/shm", wipe.shared_memory(job, _WIPE, root)),  # noqa: S108 - the path every program knows
        ("the runner's temporary files", wipe.temporary(job.temp, job.folder, _WIPE)),
    ):
        if wiped and (wiped.files or wiped.left):
            left = f"; {wiped.left} could not be removed ({wiped.why})" if wiped.left else ""
            log.say(f"Wiped {name}: {wiped.files} files, {gibibytes(wiped.size / (1 << 20))}{left}")


def _use(job: Job, stopped: Stopped, over: float) -> Told:
    """What the sampler saw of a job that was `over` at that time of the clock since boot."""
    found = record.read(job.folder)
    if found is None:
        return Told(None, job.shared, why=stopped.why or "the sampler wrote nothing")
    missing = over - found.ended
    if not stopped.early or found.summary.ended or missing < 1:
        return Told(found, job.shared)
    return Told(found, job.shared, missing, f"the sampler was gone ({stopped.why})")


def _ended(job: Job, root: Path, *, began: bool) -> Iterator[str]:
    """Ends the job's processes on GPUs, and says what it did and what is left; of a driver that is gone only where
    the job began with one."""
    try:
        before = within(_LOOK, lambda: _look(job, root))
    except (NoAnswer, Broken):
        before = None
    pids = {int(pid): memory for pid, memory in before["processes"].items()} if before else {}
    found = leftovers.find(pids, job.tracking, root)
    ended = leftovers.end(found, root=root)
    yield from map(str, ended[:_TOLD])
    if more := len(ended[_TOLD:]):
        yield f"and {more} processes more"
    gone = "it hangs" if before is None else before["gone"]
    if gone and began:
        yield f"the GPU driver does not answer any more: {gone}"
    if gone or before is None or job.shared or not before["in_use"]:
        return
    try:
        after = within(_LOOK, lambda: _look(job, root))["in_use"]
    except (NoAnswer, Broken):
        return
    for name, mebibytes in after:
        yield f"{name}: {gibibytes(mebibytes)} of its memory is still in use, by what this runner cannot see or end"


def _look(job: Job, root: Path) -> dict[str, Any]:
    from paddock.gpu import inventory as detect

    inventory = own(detect.inventory(processes=True, root=root), job)
    held: dict[int, int | None] = {}
    for process in (one for gpu in inventory.gpus for one in gpu.processes or ()):
        before = held.get(process.pid)
        held[process.pid] = process.memory if before is None else before + (process.memory or 0)
    return {"processes": held, "in_use": list(in_use(inventory)), "gone": "" if inventory.gpus else inventory.reason}
