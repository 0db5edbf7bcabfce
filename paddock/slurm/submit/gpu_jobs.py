"""Test of a Slurm: a job on every GPU at the same time, and one without, each of which reports what it sees."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from paddock.slurm.programs.nodes import Node
from paddock.slurm.programs.place import Place
from paddock.slurm.submit.seen import END, PROGRAM, Seen, parse

_MEMORY_MB = 200
_REPORT = 30.0
"""Seconds for a job's report after its start."""


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one job. `passed` is None where it could not start, for the reason in `problems`."""

    node: str
    gpu: str
    """Type that it asked for; empty for the job without a GPU, `gpu` where Slurm has no types."""
    count: int
    """GPUs that it asked for: one, or more on a node with fewer cores than GPUs."""
    passed: bool | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seen: Seen | None = None


def check(
    place: Place, nodes: Iterable[Node], seconds: float, done: Callable[[Check], None] = lambda check: None
) -> list[Check]:
    """Return the results of all nodes. `seconds` is how long a job may wait for its start. Raises SlurmError.

    Its jobs are cancelled however it ends.
    """
    name = f"paddock-test-{os.urandom(4).hex()}"
    results: list[Check] = []
    try:
        for node in nodes:
            for result in _check_node(place, node, name, seconds):
                results.append(result)
                done(result)
    finally:
        place.run("scancel", f"--name={name}")
    return results


def _check_node(place: Place, node: Node, name: str, seconds: float) -> Iterator[Check]:
    if not node.usable:
        reason = f": {node.reason}" if node.reason and node.reason != "none" else ""
        yield Check(node.name, "", 0, False, (f"the node is {node.state.lower()}{reason}",))
        return
    (alone,) = _run(place, node, [("", 0)], name, seconds)
    yield _judged_alone(node, alone)
    yield from _judged(node, _run(place, node, _shares(node), name, seconds))


def _shares(node: Node) -> list[tuple[str, int]]:
    """Return type and number of GPUs of each job, so that all run at once: a job needs a core."""
    cores = max(1, (node.cpus - node.cpus_used) // node.threads_per_core)
    size = max(1, -(-node.gpu_count // cores))
    while sum(-(-count // size) for count in node.gpus.values() if count) > max(cores, len(node.gpus)):
        size += 1
    shares = []
    for kind, count in node.gpus.items():
        shares += [(kind or "gpu", min(size, count - start)) for start in range(0, count, size)]
    return shares


@dataclass(slots=True)
class _Job:
    """Job of the test, and the outcome."""

    gpu: str
    count: int
    process: subprocess.Popen[str]
    text: str = ""
    error: str = ""

    @property
    def reported(self) -> bool:
        return END in self.text


def _run(place: Place, node: Node, shares: Sequence[tuple[str, int]], name: str, seconds: float) -> list[_Job]:
    """Run a job for each share and return them ended. None ends before all have reported, or had their time."""
    events: queue.Queue[None] = queue.Queue()
    jobs = [_Job(kind, count, _started(place, node, kind, count, name, seconds)) for kind, count in shares]
    threads = [threading.Thread(target=_read, args=(job, events), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        with contextlib.suppress(queue.Empty):
            for _ in jobs:
                events.get(timeout=seconds + _REPORT)
    finally:
        for job in jobs:
            _release(job)
            if not job.reported:
                _signal(job, signal.SIGTERM)
        for job, thread in zip(jobs, threads, strict=True):
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(10)
            if job.process.poll() is None:
                _signal(job, signal.SIGKILL)
            thread.join(10)
            for stream in (job.process.stdout, job.process.stderr):
                if stream:
                    stream.close()
    return jobs


def _started(place: Place, node: Node, kind: str, count: int, name: str, seconds: float) -> subprocess.Popen[str]:
    gres = [] if not kind else [f"--gres=gpu:{count}" if kind == "gpu" else f"--gres=gpu:{kind}:{count}"]
    command = place.command(
        "srun", f"--job-name={name}", f"--nodelist={node.name}", "--nodes=1", "--ntasks=1", "--cpus-per-task=1",
        f"--mem={_MEMORY_MB}M", "--time=10", f"--immediate={max(1, round(seconds))}", *gres, "sh", "-c", PROGRAM,
    )  # fmt: skip
    # A session of its own: Ctrl-C is for the test, which then ends its jobs.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip


def _read(job: _Job, events: queue.Queue[None]) -> None:
    """Read a job's report, or its refusal, and then to its end."""
    for line in job.process.stdout or ():
        job.text += line
        if line.startswith(END):
            break
    else:
        job.error = job.process.stderr.read() if job.process.stderr else ""
    events.put(None)


def _release(job: _Job) -> None:
    with contextlib.suppress(OSError):
        if job.process.stdin:
            job.process.stdin.close()


def _signal(job: _Job, number: signal.Signals) -> None:
    """Send a signal to all of the session: a child that outlives srun would hold its output open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.process.pid, number)


def _judged_alone(node: Node, job: _Job) -> Check:
    if not job.reported:
        return _not_started(node, job)
    seen = parse(job.text)
    shown = seen.visible or seen.uuids or ()
    problems = (f"a job without GPU sees {','.join(shown)}",) if shown else ()
    return Check(node.name, "", 0, not problems, problems, (), seen)


def _judged(node: Node, jobs: Sequence[_Job]) -> Iterator[Check]:
    owners: dict[str, _Job] = {}
    for job in jobs:
        if not job.reported:
            yield _not_started(node, job)
            continue
        seen = parse(job.text)
        problems = [*_problems(seen, job.count)]
        for device in (*seen.numbers, *(seen.uuids or ())):
            if owners.setdefault(device, job) is not job:
                problems.append(f"another job has GPU {device} at the same time")
        notes = (*seen.notes, *(() if seen.files else ("slurmd does not say its device file",)))
        yield Check(node.name, job.gpu, job.count, not problems, tuple(problems), notes, seen)


def _problems(seen: Seen, count: int) -> Iterator[str]:
    if not seen.visible:
        yield "neither CUDA_VISIBLE_DEVICES nor ROCR_VISIBLE_DEVICES is set"
    elif len(seen.visible) != count:
        yield f"it sees {len(seen.visible)} GPUs in place of {count}: {','.join(seen.visible)}"
    for file in seen.absent:
        yield f"its device file {file} is not there"
    if seen.uuids is not None and len(seen.uuids) != count:
        yield f"the driver shows it {len(seen.uuids)} GPUs in place of {count}"


def _not_started(node: Node, job: _Job) -> Check:
    words = " ".join(job.error.split())
    if not words or ("Unable to allocate resources" in words and "Requested nodes are busy" in words):
        return Check(node.name, job.gpu, job.count, None, ("it did not start in time: others use the node",))
    lines = [line.rpartition("error: ")[2] for line in job.error.splitlines() if "error: " in line]
    return Check(node.name, job.gpu, job.count, False, (f"it did not run: {'; '.join(lines) or words}",))
