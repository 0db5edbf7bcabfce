"""Test of a Slurm: a job on every GPU at the same time, and one without, each of which reports what it sees."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from paddock.slurm.programs.nodes import Node
from paddock.slurm.programs.place import Place
from paddock.slurm.submit.seen import END, PROGRAM, Seen, parse

_MEMORY_MB = 200
_NEVER_ONE_GPU = "it sees {count} GPUs in place of one: {value}"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one job. `passed` is None where it could not start, for the reason in `problems`."""

    node: str
    gpu: str
    """Type that it asked for; empty for the job without a GPU, `gpu` where Slurm has no types."""
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
        yield Check(node.name, "", False, (f"the node is {node.state.lower()}{reason}",))
        return
    (alone,) = _run(place, node, [""], name, seconds)
    yield _judged_alone(node, alone)
    kinds = [kind or "gpu" for kind, count in node.gpus.items() for _ in range(count)]
    rounds = _run(place, node, kinds, name, seconds)
    yield from _judged(node, rounds)


@dataclass(slots=True)
class _Job:
    """Job of the test, and what came of it."""

    gpu: str
    process: subprocess.Popen[str]
    text: str = ""
    error: str = ""
    group: int = 0
    """Jobs of one group ran at the same time."""

    @property
    def reported(self) -> bool:
        return END in self.text


def _run(place: Place, node: Node, kinds: Sequence[str], name: str, seconds: float) -> list[_Job]:
    """Start a job for each type and return them ended. As many run at the same time as the node has cores for."""
    events: queue.Queue[_Job] = queue.Queue()
    jobs = [_Job(kind, _started(place, node, kind, name, seconds)) for kind in kinds]
    threads = [threading.Thread(target=_read, args=(job, events), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    together = max(1, (node.cpus - node.cpus_used) // node.threads_per_core)
    waiting, running, group = len(jobs), list[_Job](), 0
    try:
        while waiting:
            try:
                job = events.get(timeout=seconds)
            except queue.Empty:
                break
            waiting -= 1
            if job.reported:
                running.append(job)
            if len(running) >= min(together, waiting + len(running)):
                for other in running:
                    other.group = group
                    _release(other)
                running, group = [], group + 1
    finally:
        for job in jobs:
            _release(job)
            if not job.reported:
                job.process.terminate()
        for job, thread in zip(jobs, threads, strict=True):
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(10)
            if job.process.poll() is None:
                job.process.kill()
            thread.join(10)
            for stream in (job.process.stdout, job.process.stderr):
                if stream:
                    stream.close()
    return jobs


def _started(place: Place, node: Node, kind: str, name: str, seconds: float) -> subprocess.Popen[str]:
    gres = [] if not kind else ["--gres=gpu:1" if kind == "gpu" else f"--gres=gpu:{kind}:1"]
    command = place.command(
        "srun", f"--job-name={name}", f"--nodelist={node.name}", "--nodes=1", "--ntasks=1", "--cpus-per-task=1",
        f"--mem={_MEMORY_MB}M", "--time=10", f"--immediate={max(1, round(seconds))}", *gres, "sh", "-c", PROGRAM,
    )  # fmt: skip
    # A session of its own: Ctrl-C is for the test, which then ends its jobs.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip


def _read(job: _Job, events: queue.Queue[_Job]) -> None:
    """Read a job's report, or its refusal, and then to its end."""
    for line in job.process.stdout or ():
        job.text += line
        if line.startswith(END):
            break
    else:
        job.error = job.process.stderr.read() if job.process.stderr else ""
    events.put(job)


def _release(job: _Job) -> None:
    with contextlib.suppress(OSError):
        if job.process.stdin:
            job.process.stdin.close()


def _judged_alone(node: Node, job: _Job) -> Check:
    if not job.reported:
        return _not_started(node, job)
    seen = parse(job.text)
    problems = (f"a job without GPU sees {','.join(seen.visible)}",) if seen.visible else ()
    return Check(node.name, "", not problems, problems, (), seen)


def _judged(node: Node, jobs: Sequence[_Job]) -> Iterator[Check]:
    owners: dict[tuple[int, str], str] = {}
    for job in jobs:
        if not job.reported:
            yield _not_started(node, job)
            continue
        seen = parse(job.text)
        problems = [*_problems(seen)]
        for device in (*seen.numbers, *(seen.uuids or ())):
            other = owners.setdefault((job.group, device), seen.job)
            if other != seen.job:
                problems.append(f"job {other} has GPU {device} at the same time")
        notes = (*seen.notes, *(("slurmd does not say its device file",) if seen.file is None else ()))
        yield Check(node.name, job.gpu, not problems, tuple(problems), notes, seen)


def _problems(seen: Seen) -> Iterator[str]:
    if not seen.visible:
        yield "neither CUDA_VISIBLE_DEVICES nor ROCR_VISIBLE_DEVICES is set"
    elif len(seen.visible) > 1:
        yield _NEVER_ONE_GPU.format(count=len(seen.visible), value=",".join(seen.visible))
    if seen.file and not seen.file_present:
        yield f"its device file {seen.file} is not there"
    if seen.uuids is not None and len(seen.uuids) != 1:
        yield f"the driver shows it {len(seen.uuids)} GPUs in place of one"


def _not_started(node: Node, job: _Job) -> Check:
    words = " ".join(job.error.split())
    if not words or ("Unable to allocate resources" in words and "Requested nodes are busy" in words):
        return Check(node.name, job.gpu, None, ("it did not start in time: others use the node",))
    lines = [line.rpartition("error: ")[2] for line in job.error.splitlines() if "error: " in line]
    return Check(node.name, job.gpu, False, (f"it did not run: {'; '.join(lines) or words}",))
