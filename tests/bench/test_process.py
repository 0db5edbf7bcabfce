"""Worker processes: they end together, whichever of them fails, and with the benchmark, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from paddock.bench.runner import process
from paddock.bench.runner.jobs import Job, to_json
from paddock.bench.runner.process import WorkerFailed, events
from paddock.models.shapes import shape
from paddock.process import start_time
from tests.support.packages import need
from tests.support.waiting import until

JOB = Job(shape("tiny"), "bf16", "cpu", (1,), (16,), 8, 1, 0)
WORKER = """
import json, os, sys, time
from paddock.children import end_with_parent
end_with_parent()
rank = int(os.environ.get("RANK", 0))
def say(**event): print(json.dumps(event), flush=True)
open(f"{FOLDER}/{os.getpid()}", "w").close()
say(event="job", number=0)
{then}
"""
Program = Callable[[str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Replaces the worker by one that goes on as told, and leaves its pid in the folder."""

    def replace(then: str) -> None:
        text = WORKER.replace("{then}", then).replace("{FOLDER}", str(tmp_path))
        monkeypatch.setattr(process, "_START", text)

    return replace


def all_ended(folder: Path) -> bool:
    """Return whether no worker runs; one may have been ended before it could leave its pid."""
    pids = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    return bool(pids) and not any(start_time(pid) for pid in pids)


@pytest.mark.parametrize(("then", "message", "code"), [
    ("say(event='failed', message='no room', code=2) if rank else time.sleep(600)", "no room", 2),
    ("os.kill(os.getpid(), 9) if rank else time.sleep(600)", "rank 1: it was ended by SIGKILL", 1),
    ("sys.exit('lost') if rank else time.sleep(600)", r"rank 1: it failed \(1\): lost", 1),
    ("time.sleep(600) if rank else sys.exit('lost')", r"rank 0: it failed \(1\): lost", 1),
])  # fmt: skip
def test_a_rank_that_fails_ends_all_at_once(
    then: str, message: str, code: int, program: Program, tmp_path: Path
) -> None:
    program(then)
    begin = time.monotonic()
    with pytest.raises(WorkerFailed, match=message) as failure:
        list(events([JOB], 2, os.environ, 60))
    assert failure.value.code == code
    assert time.monotonic() - begin < 30, "it does not wait until the others are silent for too long"
    assert all_ended(tmp_path)


def test_a_rank_that_stays_after_the_first_is_ended(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_ENDS_WITHIN", 1.0)
    program("time.sleep(600 * rank)")
    with pytest.raises(WorkerFailed, match="does not end within 1 s"):
        list(events([JOB], 2, os.environ, 60))
    assert all_ended(tmp_path)


def test_a_rank_that_cannot_start_leaves_none(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("time.sleep(600)")
    started = subprocess.Popen
    count = iter(range(2))

    def one(*arguments: object, **options: object) -> object:
        if next(count):
            raise OSError("too many processes")
        return started(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", one)
    with pytest.raises(OSError, match="too many"):
        list(events([JOB], 2, os.environ, 60))
    assert not any(start_time(int(path.name)) for path in tmp_path.iterdir() if path.name.isdecimal())


def test_an_interrupt_ends_the_worker(program: Program, tmp_path: Path) -> None:
    program("time.sleep(600)")

    def consume() -> None:
        with closing(events([JOB], 1, os.environ, 60)) as said:
            for _ in said:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert all_ended(tmp_path)


def test_workers_end_with_a_benchmark_that_is_killed(program: Program, tmp_path: Path, root: Path) -> None:
    program("time.sleep(600)")
    text = f"""
import os
from paddock.bench.runner import process
from paddock.bench.runner.jobs import from_json
process._START = {process._START!r}
for event in process.events(from_json({to_json([JOB])!r}), 2, os.environ, 60):
    print(event, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", text], cwd=root, stdout=subprocess.PIPE) as benchmark:
        benchmark.stdout.readline()
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        benchmark.send_signal(signal.SIGKILL)
    until(lambda: all_ended(tmp_path))


def test_the_real_worker_ends_with_its_parent(root: Path) -> None:
    need("torch")
    long = to_json([Job(shape("tiny"), "bf16", "cpu", (1,), (16,), 2000, 1000, 0)])
    command = [sys.executable, "-c", process._START, long]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert b'"loaded"' in worker.stdout.readline() + worker.stdout.readline()
        worker.stdin.close()
        assert worker.wait(60) != 0
