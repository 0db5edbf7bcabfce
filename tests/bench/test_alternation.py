"""Two benchmarks that take turns, run by run."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddock.bench.baselines.compare import compare
from paddock.bench.baselines.result import read
from paddock.bench.errors import BenchError
from paddock.bench.runner.alternation import Alternation
from tests.support.packages import need
from tests.support.serving import free_port

WORK = {"jobs": [["tiny", "bf16"]]}


def pair(port: int, first: Callable[[Alternation], object], second: Callable[[Alternation], object]) -> list[object]:
    """Run two sides at once, each with its turns at the port, and return what they return."""

    def side(work: Callable[[Alternation], object]) -> object:
        turns = Alternation(port, WORK, meets_within=20.0)
        try:
            return work(turns)
        finally:
            turns.close()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(side, (first, second)))


def runs(count: int, during: Callable[[], object] = lambda: None) -> Callable[[Alternation], bool]:
    def work(turns: Alternation) -> bool:
        for _ in range(count):
            with turns.turn():
                during()
        return turns.alone

    return work


def test_runs_of_two_benchmarks_alternate() -> None:
    order, running = list[str](), threading.Lock()

    def note(name: str) -> None:
        assert running.acquire(blocking=False)
        order.append(name)
        running.release()

    assert pair(free_port(), runs(50, lambda: note("a")), runs(50, lambda: note("b"))) == [False, False]
    assert len(order) == 100
    assert set(order[::2]) | set(order[1::2]) == {"a", "b"}
    assert len(set(order[::2])) == len(set(order[1::2])) == 1


def test_one_that_ends_early_leaves_the_other_alone() -> None:
    assert pair(free_port(), runs(2), runs(5)) == [False, True]


def test_without_another_benchmark_there_are_no_turns() -> None:
    port = free_port()
    with (
        pytest.raises(BenchError, match=rf"--in-turn {port}: no other benchmark came within 0\.2 s"),
        Alternation(port, WORK, meets_within=0.2).turn(),
    ):
        pass


def test_a_benchmark_of_something_else_is_refused_on_both_sides() -> None:
    port = free_port()

    def meet(dtype: str) -> str:
        with (
            pytest.raises(BenchError) as caught,
            Alternation(port, {"jobs": [["tiny", dtype]]}, meets_within=20.0).turn(),
        ):
            pass
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(meet, ("bf16", "int4"))
    assert "jobs [['tiny', 'bf16']] here, [['tiny', 'int4']] there" in ours
    assert "jobs [['tiny', 'int4']] here, [['tiny', 'bf16']] there" in theirs


def test_a_port_of_another_program_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"220 mail\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with (
            pytest.raises(BenchError, match=f"--in-turn {port}: another program answers there"),
            Alternation(port, WORK, meets_within=20.0).turn(),
        ):
            pass
        thread.join()


@pytest.mark.e2e
@pytest.mark.explore
def test_two_builds_measured_at_once_are_compared_run_by_run(root: Path, tmp_path: Path) -> None:
    need("xllamacpp")
    flags = ("--model", "tiny", "--dtype", "bf16", "--new", "5", "--runs", "3", "--sessions", "2")
    meeting = ("--in-turn", str(free_port()))
    files = [tmp_path / "old.json", tmp_path / "new.json"]
    commands = [[sys.executable, "-m", "paddock", "bench", *flags, *meeting, "--json", str(file)] for file in files]
    running = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
    old, new = map(read, files)
    assert (old[0].in_turn, new[0].in_turn) == (True, True)
    assert [name for name, metric in new[0].metrics.items() if metric.gates] == ["decode_tokens_per_s"]
    assert {row.paired for row in compare(old, new).rows} == {True}
    assert json.loads(files[0].read_text())["command"]["in_turn"] == int(meeting[1])
