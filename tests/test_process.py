from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paddock import process
from paddock.process import Process, end, end_processes, launch, sigterm_as_interrupt, spawn, start_time
from tests.support.door import real
from tests.support.waiting import until


def test_a_process_is_known_by_its_start_time(tmp_path: Path) -> None:
    started = spawn(["/bin/sleep", "60"], tmp_path / "log", lambda process: None, os.environ)
    assert started.alive
    assert os.getsid(started.pid) == started.pid
    stranger = Process(started.pid, "of another boot")
    assert end_processes([stranger]) == []
    assert started.alive
    assert end_processes([started]) == []
    assert not started.alive


def test_what_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ignore = "import signal,time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    started = spawn([sys.executable, "-c", ignore], log, lambda process: None, os.environ)
    until(lambda: "ready" in log.read_text())
    assert end_processes([started], grace=0.1) == []
    assert not started.alive


def test_an_unknown_program_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spawn([tmp_path / "none"], tmp_path / "log", lambda process: None, os.environ)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_session_holds_what_its_leader_starts() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as leader:
        until(lambda: len(process.session_members(leader.pid)) == 2)
        left = end(lambda: process.session_members(leader.pid), ((signal.SIGKILL, 5),))
        assert not left


def test_sessions_and_command_lines_are_read_without_proc(tmp_path: Path) -> None:
    real("ps")
    name = str(tmp_path / "folder-of-one-cluster")
    program = "import time; print('ready', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", program, name]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for proc in (process.PROC, tmp_path / "no-proc"):
            assert process.session_members(child.pid, proc) == [child.pid]
            assert process.pids_naming(name, proc) == [child.pid]
        child.kill()
    assert process.pids_naming(name, tmp_path / "no-proc") == []


def test_a_zombie_has_ended() -> None:
    with subprocess.Popen(["true"]) as child:
        until(lambda: start_time(child.pid) is None)


def test_the_stat_of_a_strange_name_is_read(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    numbers = " ".join(["S", "1", "7", "7", *["0"] * 13, "2", "0", "99", *["0"] * 40])
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c)) {numbers}\n")
    stat = process.read_stat(7, tmp_path)
    assert stat is not None
    assert (stat.name, stat.parent, stat.session, stat.threads, stat.start) == ("a) b (c)", 1, 7, 2, 99)
    assert process.read_stat(8, tmp_path) is None


def test_sigterm_interrupts_inside_the_block_only() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_program_whose_start_is_interrupted_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    main, pids = threading.main_thread().ident, []

    def interrupted(*args: object, **options: object) -> subprocess.Popen[bytes]:
        program = start(*args, **options)
        pids.append(program.pid)
        signal.pthread_kill(main, signal.SIGINT)
        return program

    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch(["sleep", "600"])
    assert process.read_stat(pids[0]) is None


def test_a_program_that_cannot_be_launched_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        launch(["/no/program"])
