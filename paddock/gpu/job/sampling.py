"""The sampler: a process of its own beside the job, which looks at the GPUs and costs next to nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from paddock.gpu import detect
from paddock.gpu.errors import GpuError
from paddock.gpu.job import files, record
from paddock.gpu.model import Gpu, Power, Utilisation
from paddock.gpu.monitor import Sample, chosen
from paddock.gpu.owner import Owner, this_host
from paddock.gpu.summary import Collector

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
_PID = "sampler.pid"
_KILLED = "somebody killed it"


@dataclass(frozen=True, slots=True)
class Stopped:
    """`early`: it was gone before it was told to."""

    early: bool
    why: str = ""


def start(folder: Path, runner: int) -> None:
    """Leaves a sampler behind, which ends by itself when the process `runner` does. Raises OSError."""
    # It inherits what is blocked: a job that is over before the sampler has begun has its one sample all the same.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        with open(folder / _LOG, "wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-I", "-m", "paddock.gpu.job", "sample", str(folder), str(runner)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    sampler = this_host().owner(child.pid)
    (folder / _PID).write_text(f"{sampler.pid} {sampler.start} {sampler.namespace}\n", encoding="ascii")
    child.returncode = 0  # nobody waits for it here, which is no leak


def forget(folder: Path) -> None:
    """An earlier job's, where it left one. Raises OSError."""
    for name in (_PID, record.NAME):
        (folder / name).unlink(missing_ok=True)


def stop(folder: Path, patience: float = 3.0) -> Stopped | None:
    """Lets it take a last sample and write it. None where none was started."""
    host = this_host()
    try:
        pid, started, namespace = files.read(folder / _PID).split()
        sampler = Owner(abs(int(pid)), int(started), namespace)  # below zero are groups of processes
    except (OSError, ValueError):
        return None
    if not host.alive(sampler):
        return Stopped(early=True, why=_last_words(folder))
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 0.5)):
        try:
            os.kill(sampler.pid, number)
        except OSError:
            break
        until = time.monotonic() + seconds
        while host.alive(sampler) and time.monotonic() < until:
            time.sleep(0.01)
        if not host.alive(sampler):
            return Stopped(early=number is signal.SIGKILL, why="it hung" if number is signal.SIGKILL else "")
    return Stopped(early=True, why="it hangs in the driver")


def sample(folder: Path, runner: int, clock: Callable[[], float] = time.monotonic) -> None:
    """Until it is told to end, the runner is gone, or the driver is. Raises OSError where it cannot write."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    os.nice(19)
    host = this_host()
    parent = host.owner(runner)
    source = detect.sampler()
    collector = Collector(chosen(METRICS))
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
            collector.add(Sample(at, current.taken_at, tuple(_devices(current.gpus))))
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
