"""A program on GPUs of its own: what it sees, which signals reach it, and that its GPUs are given back."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.errors import GpuInputError
from paddock.gpu.leases.manager import Leases, NoneFree
from paddock.gpu.leases.request import Request
from paddock.gpu.leases.run import displayed_command, run
from tests.conftest import ROOT
from tests.support.boxes import h100s
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases need Linux's /proc")

RUN = textwrap.dedent("""
    import json, sys
    from pathlib import Path
    from paddock.gpu.errors import GpuError
    from paddock.gpu.leases.manager import Leases
    from paddock.gpu.leases.request import Request
    from paddock.gpu.leases.run import run
    from tests.support.boxes import h100s

    about = json.loads(sys.argv[1])
    leases = Leases(Path(about["folder"]), environ={})
    try:
        request = Request.from_dict(about.get("request", {}))
        code = run(about["command"], request, leases=leases, read_inventory=lambda: h100s(4), wait=about.get("wait", 0))
    except GpuError as error:
        print(error, file=sys.stderr)
        code = error.exit_code
    sys.exit(code)
""")

WITNESS = textwrap.dedent("""
    import os, signal, sys, time
    got = []
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH"):
        signal.signal(getattr(signal, name), lambda number, frame: got.append(signal.Signals(number).name))
    print("up", os.getpid(), flush=True)
    while not any(name in got for name in sys.argv[1].split(",")):
        time.sleep(0.01)
    time.sleep(0.2)
    print(*got, flush=True)
    sys.exit(23)
""")


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(leases: Leases) -> Iterator[Start]:
    started = []

    def go(*command: str, stdin: int = subprocess.DEVNULL, **about: object) -> subprocess.Popen[str]:
        result = json.dumps({"folder": str(leases.path), "command": command, **about})
        child = subprocess.Popen(
            [sys.executable, "-c", RUN, result],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        started.append(child)
        return child

    yield go
    for child in started:
        child.kill()
        child.communicate()


def up(child: subprocess.Popen[str]) -> int:
    """Wait for the program and return its pid."""
    line = child.stdout.readline().split()
    assert line[0] == "up", line
    return int(line[1])


def has_ended(leases: Leases) -> bool:
    return leases.all() == ()


def run_here(leases: Leases, *command: str, **request: Any) -> int:
    return run(command, Request(**request), leases=leases, read_inventory=lambda: h100s(4))


def test_the_program_sees_its_gpus_and_no_others(leases: Leases, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_here(leases, "env", count=2, uuids=("GPU-00000001", "GPU-00000003")) == 0
    output = dict(line.partition("=")[::2] for line in capfd.readouterr().out.splitlines())
    uuids = "GPU-00000001-aaaa,GPU-00000003-aaaa"
    assert output["CUDA_VISIBLE_DEVICES"] == output["NVIDIA_VISIBLE_DEVICES"] == uuids
    assert output["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert len(output["PADDOCK_GPU_LEASE"]) == 8
    assert has_ended(leases)


@pytest.mark.parametrize(
    ("program", "status"), [("exit 0", 0), ("exit 41", 41), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
)
def test_the_exit_status_is_the_program_s(leases: Leases, program: str, status: int) -> None:
    assert run_here(leases, "sh", "-c", program) == status
    assert has_ended(leases)


def test_every_signal_is_forwarded_once(start: Start, leases: Leases) -> None:
    sent = ["SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM"]
    # Not a print, which fails where the signal comes within another print.
    said = WITNESS.replace("number).name)", r"number).name) or os.write(1, b'got\n')")
    child = start(sys.executable, "-c", said, sent[-1])
    up(child)
    assert len(leases.all()) == 1
    for name in sent:
        child.send_signal(getattr(signal, name))
        assert child.stdout.readline() == "got\n", name
    assert child.communicate()[0].split() == sent
    assert child.returncode == 23
    assert has_ended(leases)


def test_a_signal_reaches_what_the_program_started_too(start: Start, leases: Leases) -> None:
    child = start("sh", "-c", f"{sys.executable} -c '{WITNESS.replace(chr(39), chr(34))}' SIGTERM & wait $!; wait")
    up(child)
    child.send_signal(signal.SIGTERM)
    child.wait()
    assert child.returncode == 128 + signal.SIGTERM
    assert has_ended(leases)


def test_at_a_terminal_ctrl_c_reaches_the_program_once(leases: Leases) -> None:
    program = "import sys; print('read', input(), flush=True)\n" + WITNESS
    process = json.dumps({"folder": str(leases.path), "command": [sys.executable, "-c", program, "SIGINT"]})
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = str(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", RUN, process])
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        os.write(terminal, b"typed\n")
        output = _until(screen.fileno(), b"up ")
        assert b"read typed" in output, output
        os.write(terminal, b"\x03")
        output = _until(screen.fileno(), b"SIGINT")
        status = os.waitpid(pid, 0)[1]
        output += _rest(screen.fileno())
    assert output.count(b"SIGINT") == 1, output
    assert os.waitstatus_to_exitcode(status) == 23
    assert has_ended(leases)


def test_at_a_terminal_ctrl_z_stops_and_fg_continues(leases: Leases) -> None:
    """The shell is a real one, with job control."""
    process = json.dumps({"folder": str(leases.path), "command": [sys.executable, "-c", WITNESS, "SIGINT"]})
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(PYTHONPATH=str(ROOT), PS1="$ ", CODE=RUN, TOLD=process, HISTFILE="")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    with os.fdopen(terminal, "rb", buffering=0):
        os.write(terminal, f'{sys.executable} -c "$CODE" "$TOLD"\n'.encode())
        _until(terminal, b"up ")
        os.write(terminal, b"\x1a")
        _until(terminal, b"Stopped")
        ((lease, state),) = leases.all()
        assert state == "held", "stopped, not ended"
        os.write(terminal, b"fg\n")
        while os.tcgetpgrp(terminal) != lease.owners[-1].pid:
            time.sleep(0.01)
        os.write(terminal, b"\x03")
        _until(terminal, b"SIGINT")
        os.write(terminal, b"echo status $?\n")
        _until(terminal, b"status 23")
        os.write(terminal, b"exit\n")
        os.waitpid(pid, 0)
    assert has_ended(leases)


def _until(terminal: int, expected: bytes, seconds: float = 30) -> bytes:
    import select

    output, end = b"", time.monotonic() + seconds
    while expected not in output:
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        assert ready, f"no {expected!r} in {output!r}"
        output += os.read(terminal, 4096)
    return output


def _rest(terminal: int) -> bytes:
    output = b""
    try:
        while more := os.read(terminal, 4096):
            output += more
    except OSError:  # the other end is closed
        pass
    return output


def test_killing_the_runner_leaves_the_program_its_gpus(start: Start, leases: Leases) -> None:
    child = start(sys.executable, "-c", WITNESS, "SIGTERM", request={"count": 4})
    program = up(child)
    child.kill()
    child.wait()
    ((lease, state),) = leases.all()
    assert state == "held"
    assert program in {owner.pid for owner in lease.owners}
    with pytest.raises(NoneFree):
        leases.take(Request(), lambda: h100s(4), ttl=60)
    os.kill(program, signal.SIGTERM)
    while leases.state(lease) == "held":
        time.sleep(0.01)
    assert len(leases.take(Request(count=4), lambda: h100s(4), ttl=60).lease.devices) == 4


def test_waiting_gets_the_gpus_that_another_gives_back(start: Start, leases: Leases) -> None:
    first = leases.take(Request(count=4), lambda: h100s(4), ttl=600).lease
    child = start("echo", "done", wait=60)
    until(leases.queue)
    leases.release(first.id)
    assert child.communicate()[0] == "done\n"
    assert has_ended(leases)


def test_where_nothing_is_free_nothing_runs(leases: Leases, tmp_path: Path) -> None:
    leases.take(Request(count=4), lambda: h100s(4), ttl=600)
    with pytest.raises(NoneFree, match=r"1 GPU requested, and none available\.") as refused:
        run_here(leases, "touch", str(tmp_path / "ran"))
    assert str(refused.value).count("leased to") == 4
    assert not (tmp_path / "ran").exists()


def test_a_program_that_is_not_there_takes_no_gpu(leases: Leases) -> None:
    with pytest.raises(GpuInputError, match="there is no program 'pyton'"):
        run(["pyton", "train.py"], Request(), leases=leases, read_inventory=lambda: h100s(1))
    with pytest.raises(GpuInputError, match="no program to run"):
        run([], Request(), leases=leases, read_inventory=lambda: h100s(1))
    assert not leases.path.exists()


def test_a_file_that_cannot_be_run_gives_its_gpu_back(leases: Leases, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\0\1\2")
    broken.chmod(0o755)
    with pytest.raises(GpuInputError, match="Exec format error"):
        run_here(leases, str(broken))
    assert has_ended(leases)


def test_a_lease_that_cannot_be_kept_up_runs_nothing(
    leases: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program starts only once it is an owner."""

    def full(self: Leases, id: str, pid: int) -> None:
        raise GpuInputError("no room\n    expected: room")

    monkeypatch.setattr(Leases, "watch", full)
    with pytest.raises(GpuInputError, match="no room"):
        run(["touch", str(tmp_path / "ran")], Request(), leases=leases, read_inventory=lambda: h100s(1))
    assert not (tmp_path / "ran").exists()
    assert has_ended(leases)


def test_only_the_program_and_its_script_are_shown_to_others() -> None:
    assert displayed_command(["/usr/bin/python", "train.py", "--token", "secret"]) == "python train.py"
    assert displayed_command(["curl", "-Hsecret", "x"]) == "curl"


def test_in_a_container_the_lease_is_renewed_while_the_program_runs(
    leases: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.gpu.leases.run._POLL_SECONDS", 0.05)
    monkeypatch.setattr("paddock.gpu.leases.run._RENEWED_EVERY", 0.05)
    monkeypatch.setattr(type(leases.host), "sees_driver_pids", property(lambda self: False))
    renewed = []
    real = Leases.renew
    twice = tmp_path / "twice"

    def renew(self: Leases, id: str) -> None:
        renewed.append(real(self, id))
        if len(renewed) == 2:
            twice.touch()

    monkeypatch.setattr(Leases, "renew", renew)
    waits = ["sh", "-c", f"until [ -e '{twice}' ]; do sleep 0.02; done"]
    assert run(waits, Request(), leases=leases, read_inventory=lambda: h100s(1)) == 0
    assert renewed[0].ttl == 120
    assert has_ended(leases)


def test_an_end_signalled_to_another_thread_is_noticed(
    leases: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.gpu.leases.run._POLL_SECONDS", 0.05)
    monkeypatch.setattr("paddock.gpu.leases.run._RENEWED_EVERY", 0.0)
    monkeypatch.setattr(type(leases.host), "sees_driver_pids", property(lambda self: False))
    renewed: list[str] = []

    def while_it_ends(self: Leases, id: str) -> None:
        """Let the program end, while this thread does not wait for its signal."""
        renewed.append(id)
        assert len(renewed) < 30, "it has ended, and nobody saw it"
        (tmp_path / "end").touch()
        ((lease, _),) = self.all()
        until(lambda: not self.host.alive(lease.owners[-1]))

    monkeypatch.setattr(Leases, "renew", while_it_ends)
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    waits = ["sh", "-c", f"until [ -e '{tmp_path / 'end'}' ]; do sleep 0.02; done"]
    try:
        assert run(waits, Request(), leases=leases, read_inventory=lambda: h100s(1)) == 0
    finally:
        over.set()
        other.join()
