"""The worker process: it ends with the benchmark, however that ends, and says why it failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from paddock.bench.engines.door import BenchJob
from paddock.bench.runner import process
from paddock.bench.runner.process import WorkerFailed, events
from paddock.models.shapes import shape
from paddock.process import start_time
from tests.support.packages import need
from tests.support.waiting import until

JOB = BenchJob(shape("tiny"), "bf16", "cpu", (1,), (16,), 8, 1, 0, "torch")
WORKER = """
import json, os, sys, time
from paddock.children import end_with_parent
end_with_parent()
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


@pytest.mark.parametrize(("then", "message"), [
    ("os.kill(os.getpid(), 9)", "it was ended by SIGKILL"),
    ("sys.exit('lost')", r"it failed \(1\): lost"),
    ("os.close(1); time.sleep(600)", "it does not end"),
    ("print('{', flush=True); print('[1]', flush=True); time.sleep(600)", "no answer within 2 s"),
])  # fmt: skip
def test_a_worker_that_fails_or_hangs_says_why_and_is_ended(
    then: str, message: str, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_ENDS_WITHIN", 1.0)
    program(then)
    said = events([JOB], os.environ, 2.0 if "no answer" in message else 60.0)
    assert next(said) == {"event": "job", "number": 0}
    with pytest.raises(WorkerFailed, match=message):
        next(said)
    assert all_ended(tmp_path)


def test_an_interrupt_ends_the_worker(program: Program, tmp_path: Path) -> None:
    program("time.sleep(600)")

    def consume() -> None:
        with closing(events([JOB], os.environ, 60)) as said:
            for _ in said:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert all_ended(tmp_path)


def test_a_worker_ends_with_a_benchmark_that_is_killed(program: Program, tmp_path: Path, root: Path) -> None:
    program("time.sleep(600)")
    text = f"""
import os
from paddock.bench.runner import process
process._START = {process._START!r}
for event in process.events(process.Jobs.validate_json({process.Jobs.dump_json([JOB]).decode()!r}), os.environ, 60):
    print(event, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", text], cwd=root, stdout=subprocess.PIPE) as benchmark:
        benchmark.stdout.readline()
        benchmark.send_signal(signal.SIGKILL)
    until(lambda: all_ended(tmp_path))


@pytest.mark.parametrize(("engine", "package"), [("llama.cpp", "xllamacpp"), ("torch", "transformers")])
def test_the_real_worker_ends_with_its_parent(engine: str, package: str, root: Path) -> None:
    need(package)
    long = process.Jobs.dump_json([BenchJob(shape("tiny"), "fp32", "cpu", (1,), (16,), 2000, 1000, 0, engine)]).decode()
    command = [sys.executable, "-c", process._START, long]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert b'"loaded"' in worker.stdout.readline() + worker.stdout.readline()
        worker.stdin.close()
        assert worker.wait(60) != 0
