"""Hook before the first step of a job: check that its GPUs are present, healthy, at full speed and not in use."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from paddock.gpu import inventory as detect
from paddock.gpu.errors import GpuError
from paddock.gpu.health import check
from paddock.gpu.health.rules import HealthContext
from paddock.gpu.health.xid import SxidEvent, events
from paddock.gpu.host import kernel_log
from paddock.gpu.host.bounded import NoAnswer, within
from paddock.gpu.job_hooks import ccache, container_devices, log, sampling
from paddock.gpu.job_hooks.admission import Admission, admit, own, unanswered
from paddock.gpu.job_hooks.environment import PodJob

REFUSED = 10
"""Exit code of a refused job, and of nothing else."""
CHECK_UNTIL, MARK_UNTIL = 3.0, 4.3
"""Seconds since the start of this process, for which the script allows 4.7."""
_MIN_SECONDS = 1.5
"""Seconds for the driver. With less, a slow disk or a busy machine would look like a driver that hangs."""
_RETRY_SECONDS = 0.4
_TITLE = "GPU not usable"


def run(
    runner: int, *, began_at: float | None = None, environ: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> int:
    """Return REFUSED, or 0 with a sampler started; `runner` is the runner's pid, and `began_at` the time from which the
    time limits count. Errors are raised."""
    job, began_at = PodJob.from_environ(environ), time.monotonic() if began_at is None else began_at
    if not job.gpus:
        return 0
    _prepare(job)
    seconds = began_at + CHECK_UNTIL - time.monotonic()
    if seconds < _MIN_SECONDS:
        log.warning("GPU not checked", f"On {job.where}: this hook was too slow to start, and the job continues")
        _start_sampler(job, runner)
        return 0
    try:
        admission = within(seconds, lambda: check_gpus(job, seconds, root))
    except NoAnswer as late:
        admission = unanswered(seconds, hangs=late.stuck and container_devices.driver_started(root))
    marked = _mark_node(admission.replace, began_at, environ, root) if admission.replace else ""
    if admission.refused:
        _refuse(job, admission, marked)
        return REFUSED
    for text in admission.warnings:
        log.warning("GPU", f"On {job.where}: {text}")
    if marked:
        log.info(f"This job continues: {marked}.")
    state = "healthy" if job.shared else "healthy and free"
    took = time.monotonic() - began_at
    log.info(f"GPU check: {admission.gpus}; {'usable' if admission.warnings else state} ({took:.1f} s)")
    _start_sampler(job, runner)
    return 0


def check_gpus(job: PodJob, seconds: float, root: Path = Path("/")) -> Admission:
    """Check the GPUs, and again while reasons are transient and time remains: the last job may still be ending."""
    deadline = time.monotonic() + seconds - 2 * _RETRY_SECONDS
    while True:
        start = time.monotonic()
        admission = _check_once(job, root)
        if not admission.transient or time.monotonic() + _RETRY_SECONDS + (time.monotonic() - start) > deadline:
            return admission
        time.sleep(_RETRY_SECONDS)


def _check_once(job: PodJob, root: Path) -> Admission:
    visible = detect.inventory(processes=not job.shared, topology=job.gpus > 1, root=root)
    devices_missing = len(visible.usable) < job.gpus and len(visible.usable) < container_devices.expected_gpus(root)
    inventory = own(visible, job)
    kernel = kernel_log.read(root=root, run=lambda command: None)  # journalctl and dmesg may take seconds
    own_addresses = {gpu.pci_address for gpu in inventory.gpus}
    # An NVSwitch has an address of its own, and its errors concern every GPU on it.
    xids = [
        event for event in events(kernel.lines) if isinstance(event, SxidEvent) or event.pci_address in own_addresses
    ]
    unchecked = (f"Xids: {kernel.reason}",) if kernel.reason else ()
    context = HealthContext(uptime=kernel_log.uptime(root), idle=not job.shared)
    return admit(inventory, check.evaluate(inventory, xids, context, unchecked), job, devices_missing=devices_missing)


def _prepare(job: PodJob) -> None:
    # Imported here, so that loading it from a cold disk does not use up the driver's time.
    import paddock.gpu.drivers.nvml  # noqa: F401 - for its loading

    try:
        folder = job.create_folder()
        sampling.remove_previous(folder)
        ccache.begin(folder)
    except OSError as error:
        log.info(f"GPU use of this job will not be reported: {error}")


def _mark_node(reason: str, began_at: float, environ: Mapping[str, str], root: Path) -> str:
    from paddock.gpu.job_hooks.node import mark

    return mark(reason, environ=environ, root=root, timeout_s=max(0.1, began_at + MARK_UNTIL - time.monotonic()))


def _refuse(job: PodJob, admission: Admission, marked: str) -> None:
    text = (
        f"{admission.refused}. It is not your code: the job was stopped before its first step. Re-run it:"
        " this runner is gone, and another takes the job."
    )
    if marked:
        text += f" {marked[0].upper()}{marked[1:]}."
    log.error(f"{_TITLE} on {job.where}", text)
    log.group("Findings", [admission.gpus or "no GPU answered", *admission.details])
    log.append_summary(job.summary, f"### {_TITLE}\n\nOn {job.where}: {log.table_cell(text)}\n")


def _start_sampler(job: PodJob, runner: int) -> None:
    try:
        sampling.start(job.create_folder(), runner)
    except (OSError, GpuError) as error:
        log.warning("GPU use", f"GPU use of this job will not be reported: {error}")
