"""Sampler: a separate process next to the job, which reads the GPUs at negligible cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from paddock import process
from paddock.gpu import inventory
from paddock.gpu.errors import GpuError
from paddock.gpu.host.processes import Owner, this_host
from paddock.gpu.job_hooks import files, record
from paddock.gpu.job_hooks.admission import own
from paddock.gpu.job_hooks.environment import PodJob
from paddock.gpu.model import Gpu, Power, Utilisation
from paddock.gpu.monitoring.sampling import Sample, select_metrics
from paddock.gpu.monitoring.summary import Collector

METRICS = ("utilisation", "memory", "power", "temperature")
CPU_SHARE = 0.002
"""Share of one core that samples may cost, without the start of the process."""
SHORTEST, LONGEST = 1.0, 30.0
"""Seconds between samples: the driver averages utilisation over up to a second."""
SAVE_INTERVAL = 15.0
MAX_LIFETIME = 5 * 24 * 3600.0
"""Seconds: a job on a self-hosted runner may not take longer."""
_END_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_LOG = "sampler.log"
_KILLED_TEXT = "it was killed"


@dataclass(frozen=True, slots=True)
class Stopped:
    """End of the sampler; `early` if it ended before it was asked to."""

    early: bool
    why: str = ""


def start(folder: Path, runner: int) -> None:
    """Start a sampler, which ends by itself when the process `runner` does. Raises OSError.

    It is found again by its command line: jobs may delete a file with its pid.
    """
    # The child inherits the blocked signals, so that even a job shorter than its start gets one sample.
    with process.blocked(_END_SIGNALS), open(folder / _LOG, "wb") as log:
        child = subprocess.Popen(
            [sys.executable, *_command(folder), str(runner)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    child.returncode = 0  # prevents the warning about a child that is not waited for


def remove_previous(folder: Path) -> None:
    """Delete the files of an earlier job. Raises OSError."""
    for name in (_LOG, record.NAME):
        (folder / name).unlink(missing_ok=True)


def running(folder: Path) -> list[Owner]:
    """Return the samplers of the folder: one, unless a job has started more."""
    host, samplers = this_host(), []
    for pid in process.pids():
        try:
            command = (process.PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            if command[1:6] == list(map(os.fsencode, _command(folder))):
                samplers.append(host.owner(pid))
        except (OSError, GpuError):
            continue  # it has ended meanwhile
    return samplers


def stop(folder: Path, patience: float = 3.0) -> Stopped | None:
    """End the sampler after a last sample. Return None if none was started."""
    host, samplers = this_host(), running(folder)
    if not samplers:
        return Stopped(early=True, why=_last_log_line(folder)) if (folder / _LOG).exists() else None

    def alive() -> list[int]:
        return [sampler.pid for sampler in samplers if host.alive(sampler)]

    if not process.end(alive, ((signal.SIGTERM, patience),)):
        return Stopped(early=False)
    if not process.end(alive, ((signal.SIGKILL, 0.5),)):
        return Stopped(early=True, why="it hung")
    return Stopped(early=True, why="it did not end when killed: it hangs in the driver, or the machine is busy")


def sample(folder: Path, runner: int, clock: Callable[[], float] = time.monotonic) -> None:
    """Sample until a signal, the end of the runner or an error of the driver. Raises OSError if it cannot write."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)
    os.nice(19)
    host = this_host()
    parent = host.owner(runner)
    sampler, job = inventory.sampler(), PodJob.from_environ()
    collector = Collector(select_metrics(METRICS))
    start, cost, spent = clock(), 0.0, time.process_time()
    saved, interval = -SAVE_INTERVAL, SHORTEST
    ending, ended = False, None
    while True:
        at = clock() - start
        try:
            current = sampler.read()
        except GpuError as error:
            ended = str(error)
        else:
            collector.add(Sample(at, current.taken_at, tuple(_gpus_or_parts(own(current, job).gpus))))
        last = ending or ended is not None or at >= MAX_LIFETIME or not host.alive(parent)
        if last or at - saved >= SAVE_INTERVAL:
            record.write(folder, record.Record(collector.summary(ended), interval, host.clock()))
            saved = at
        if last:
            return
        now = time.process_time()
        cost, spent = max(0.8 * cost, now - spent), now
        interval = min(LONGEST, max(SHORTEST, cost / CPU_SHARE))
        ending = signal.sigtimedwait(_END_SIGNALS, interval) is not None


def _command(folder: Path) -> tuple[str, ...]:
    return "-I", "-m", "paddock.gpu.job_hooks", "sample", str(folder)


def _gpus_or_parts(gpus: tuple[Gpu, ...]) -> Iterator[Gpu]:
    """Yield each GPU, or each of its MIG parts, for which the driver reports only memory."""
    for gpu in gpus:
        if gpu.mig and gpu.mig.enabled and gpu.mig.devices:
            for part in gpu.mig.devices:
                name = f"{gpu.name} {part.profile}"
                yield replace(
                    gpu, uuid=part.uuid, name=name, memory=part.memory, utilisation=Utilisation(), power=Power()
                )
        else:
            yield gpu


def _last_log_line(folder: Path) -> str:
    try:
        lines = files.read(folder / _LOG).strip().splitlines()
    except OSError:
        return _KILLED_TEXT
    return lines[-1] if lines else _KILLED_TEXT
