"""The sampler: a process of its own beside the job, which looks at the GPUs and costs next to nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from paddock.gpu import inventory
from paddock.gpu.errors import GpuError
from paddock.gpu.host.processes import Owner, this_host
from paddock.gpu.job_hooks import files, record
from paddock.gpu.job_hooks.admission import own
from paddock.gpu.job_hooks.environment import Job
from paddock.gpu.model import Gpu, Power, Utilisation
from paddock.gpu.monitoring.sampling import Sample, select_metrics
from paddock.gpu.monitoring.summary import Collector

METRICS = ("utilisation", "memory", "power", "temperature")
OF_A_CORE = 0.002
"""What the samples may cost. What it takes to start comes on top of it, once."""
SHORTEST, LONGEST = 1.0, 30.0
"""Seconds between samples: the driver's own utilisation is that of up to a second."""
SAVED_EVERY = 15.0
LIFETIME = 5 * 24 * 3600.0
"""Seconds: no job of a self-hosted runner takes longer."""
_ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_LOG = "sampler.log"
_KILLED = "somebody killed it"


@dataclass(frozen=True, slots=True)
class Stopped:
    """`early`: it was gone before it was told to."""

    early: bool
    why: str = ""


def start(folder: Path, runner: int) -> None:
    """Leaves a sampler behind, which ends by itself when the process `runner` does. Raises OSError.

    It is found again by its command line: a file with its pid would lie where jobs clean up.
    """
    # It inherits what is blocked: a job that is over before the sampler has begun has its one sample all the same.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        with open(folder / _LOG, "wb") as log:
            child = subprocess.Popen(
                [sys.executable, *_command(folder), str(runner)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    child.returncode = 0  # nobody waits for it here, which is no leak


def forget(folder: Path) -> None:
    """An earlier job's, where it left one. Raises OSError."""
    for name in (_LOG, record.NAME):
        (folder / name).unlink(missing_ok=True)


def running(folder: Path) -> list[Owner]:
    """The samplers of that folder: one, unless a job has started more."""
    host, found = this_host(), []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            command = (Path("/proc") / name / "cmdline").read_bytes().split(b"\0")
            if command[1:6] == list(map(os.fsencode, _command(folder))):
                found.append(host.owner(int(name)))
        except (OSError, GpuError):
            continue  # it has ended meanwhile
    return found


def stop(folder: Path, patience: float = 3.0) -> Stopped | None:
    """Lets it take a last sample and write it. None where none was started."""
    host = this_host()
    living = running(folder)
    if not living:
        return Stopped(early=True, why=_last_words(folder)) if (folder / _LOG).exists() else None
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 0.5)):
        for sampler in living:
            with contextlib.suppress(OSError):
                os.kill(sampler.pid, number)
        until = time.monotonic() + seconds
        while (living := list(filter(host.alive, living))) and time.monotonic() < until:
            time.sleep(0.01)
        if not living:
            return Stopped(early=number is signal.SIGKILL, why="it hung" if number is signal.SIGKILL else "")
    return Stopped(early=True, why="it hangs in the driver")


def sample(folder: Path, runner: int, clock: Callable[[], float] = time.monotonic) -> None:
    """Until it is told to end, the runner is gone, or the driver is. Raises OSError where it cannot write."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    os.nice(19)
    host = this_host()
    parent = host.owner(runner)
    source, job = inventory.sampler(), Job.of()
    collector = Collector(select_metrics(METRICS))
    start, cost, spent = clock(), 0.0, time.process_time()
    saved, interval = -SAVED_EVERY, SHORTEST
    told, ended = False, None
    while True:
        at = clock() - start
        try:
            current = source.read()
        except GpuError as error:
            ended = str(error)
        else:
            collector.add(Sample(at, current.taken_at, tuple(_devices(own(current, job).gpus))))
        last = told or ended is not None or at >= LIFETIME or not host.alive(parent)
        if last or at - saved >= SAVED_EVERY:
            record.write(folder, record.Record(collector.summary(ended), interval, host.clock()))
            saved = at
        if last:
            return
        now = time.process_time()
        cost, spent = max(0.8 * cost, now - spent), now
        interval = min(LONGEST, max(SHORTEST, cost / OF_A_CORE))
        told = signal.sigtimedwait(_ENDING, interval) is not None


def _command(folder: Path) -> tuple[str, ...]:
    return "-I", "-m", "paddock.gpu.job_hooks", "sample", str(folder)


def _devices(gpus: tuple[Gpu, ...]) -> Iterator[Gpu]:
    """Each GPU, or each of its MIG parts, of which the driver tells the memory and no more."""
    for gpu in gpus:
        if gpu.mig and gpu.mig.enabled and gpu.mig.devices:
            for part in gpu.mig.devices:
                name = f"{gpu.name} {part.profile}"
                yield replace(
                    gpu, uuid=part.uuid, name=name, memory=part.memory, utilisation=Utilisation(), power=Power()
                )
        else:
            yield gpu


def _last_words(folder: Path) -> str:
    try:
        lines = files.read(folder / _LOG).strip().splitlines()
    except OSError:
        return _KILLED
    return lines[-1] if lines else _KILLED
