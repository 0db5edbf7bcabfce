"""Before the first step of a job: are its GPUs here, healthy, at full speed and empty?"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddock.gpu import inventory as detect
from paddock.gpu.errors import GpuError
from paddock.gpu.health import check
from paddock.gpu.health.rules import HealthContext
from paddock.gpu.health.xid import events
from paddock.gpu.host import kernel_log
from paddock.gpu.job_hooks import ccache, container_devices, log, sampling
from paddock.gpu.job_hooks.admission import Admission, admit, own, unanswered
from paddock.gpu.job_hooks.bounded import NoAnswer, within
from paddock.gpu.job_hooks.environment import Job

REFUSED = 10
"""The exit code of a job that may not start, and of nothing else."""
LOOK_UNTIL, MARK_UNTIL = 3.0, 4.3
"""Seconds since this process began. The script gives it 4.7 in all."""
_LEAST = 1.5
"""Seconds for the driver. With less, a slow disk or a busy machine would be taken for one that hangs."""
_AGAIN = 0.4
_TITLE = "GPU not usable"


def run(
    runner: int, *, began: float | None = None, environ: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> int:
    """REFUSED, or 0 with a sampler left behind; `runner` is the process whose job it is, and `began` when the time of
    this one began to count. Raises what fails."""
    job, began = Job.of(environ), time.monotonic() if began is None else began
    if not job.gpus:
        return 0
    _prepare(job)
    seconds = began + LOOK_UNTIL - time.monotonic()
    if seconds < _LEAST:
        log.warning("GPU not checked", f"On {job.where}: this hook was too slow to start, and the job goes on")
        _sample(job, runner)
        return 0
    try:
        admission = _admission(within(seconds, lambda: _told(look(job, seconds, root))))
    except NoAnswer as late:
        admission = unanswered(seconds, hangs=late.stuck and container_devices.started(root))
    marked = _mark(admission.replace, began, environ, root) if admission.replace else ""
    if admission.refused:
        _refuse(job, admission, marked)
        return REFUSED
    for text in admission.warnings:
        log.warning("GPU", f"On {job.where}: {text}")
    if marked:
        log.say(f"This job goes on: {marked}.")
    state = "healthy" if job.shared else "healthy and free"
    took = time.monotonic() - began
    log.say(f"GPU check: {admission.gpus}; {'usable' if admission.warnings else state} ({took:.1f} s)")
    _sample(job, runner)
    return 0


def look(job: Job, seconds: float, root: Path = Path("/")) -> Admission:
    """Asks the driver. What may pass is looked at again as long as there is time: the last job's processes may still
    be going."""
    until = time.monotonic() + seconds - 2 * _AGAIN
    while True:
        start = time.monotonic()
        found = _look(job, root)
        if not found.passing or time.monotonic() + _AGAIN + (time.monotonic() - start) > until:
            return found
        time.sleep(_AGAIN)


def _look(job: Job, root: Path) -> Admission:
    everything = detect.inventory(processes=not job.shared, topology=job.gpus > 1, root=root)
    gone = len(everything.usable) < job.gpus and len(everything.usable) < container_devices.gpus(root)
    inventory = own(everything, job)
    told = kernel_log.read(root=root, run=lambda command: None)  # journalctl and dmesg may take seconds
    ours = {gpu.pci_address for gpu in inventory.gpus}
    xids = [event for event in events(told.lines) if event.pci_address in ours]
    unchecked = (f"Xids: {told.reason}",) if told.reason else ()
    around = HealthContext(uptime=kernel_log.uptime(root), idle=not job.shared)
    return admit(inventory, check.evaluate(inventory, xids, around, unchecked), job, gone=gone)


def _told(admission: Admission) -> dict[str, Any]:
    return {name: getattr(admission, name) for name in Admission.__slots__}


def _admission(told: Mapping[str, Any]) -> Admission:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    return Admission(**fields)


def _prepare(job: Job) -> None:
    # Here, so that reading it from a cold disk takes none of the driver's time.
    import paddock.gpu.drivers.nvml  # noqa: F401 - for its loading

    try:
        folder = job.own_folder()
        sampling.forget(folder)
        ccache.begin(folder)
    except OSError as error:
        log.say(f"GPU use of this job will not be told: {error}")


def _mark(reason: str, began: float, environ: Mapping[str, str], root: Path) -> str:
    from paddock.gpu.job_hooks.node import mark

    return mark(reason, environ=environ, root=root, timeout_s=max(0.1, began + MARK_UNTIL - time.monotonic()))


def _refuse(job: Job, admission: Admission, marked: str) -> None:
    text = (
        f"{admission.refused}. It is not your code: the job was stopped before its first step. Re-run it:"
        " this runner is gone, and another takes the job."
    )
    if marked:
        text += f" {marked[0].upper()}{marked[1:]}."
    log.error(f"{_TITLE} on {job.where}", text)
    log.group("What was found", [admission.gpus or "no GPU answered", *admission.details])
    log.page(job.summary, f"### {_TITLE}\n\nOn {job.where}: {log.cell(text)}\n")


def _sample(job: Job, runner: int) -> None:
    try:
        sampling.start(job.own_folder(), runner)
    except (OSError, GpuError) as error:
        log.warning("GPU use", f"GPU use of this job will not be told: {error}")
