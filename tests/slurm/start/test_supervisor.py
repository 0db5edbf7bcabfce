"""Watch over real processes: restarts with growing pauses, last words, an end in order."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.slurm.errors import SlurmError
from paddock.slurm.start.layout import Layout, User, Users
from paddock.slurm.start.munge import prepare_key
from paddock.slurm.start.supervisor import Daemon, Supervisor
from tests.support.waiting import until

ME = User(("me", "x", os.getuid(), os.getgid(), "", "/", "/bin/sh"))


class Watched:
    """A supervisor with what it said."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.supervisor = Supervisor(self.lines.append, restarts=2, pause_s=0.01)

    def start(self, program: str, name: str = "daemon", stop_s: float = 10.0) -> None:
        command = [sys.executable, "-u", "-c", program]
        self.supervisor.start(Daemon(name, lambda: command, ME, stop_s))


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.supervisor.stop("daemon")


def test_a_daemon_that_dies_is_started_again_until_it_dies_too_often(watched: Watched, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    watched.start(f"open({str(starts)!r}, 'a').write('x'); print('last words'); raise SystemExit(3)")
    assert until(watched.supervisor.check) == "daemon"
    assert starts.read_text() == "xxx"
    assert watched.lines == [
        "daemon ended (exit 3): last words", "daemon starts again in 0.01 s (1 of 2)",
        "daemon ended (exit 3): last words", "daemon starts again in 0.02 s (2 of 2)",
    ]  # fmt: skip
    assert watched.supervisor.last_lines("daemon") == ["last words"]


def test_a_fault_in_its_output_is_explained_once(watched: Watched) -> None:
    line = "slurmctld: error: Munge decode failed: Invalid credential"
    watched.start(f"print({line!r}); print({line!r})")
    until(lambda: watched.supervisor.last_lines("daemon") == [line, line])
    assert [text for text in watched.lines if "munge keys differ" in text] == [
        "error: munge keys differ between this container and another one of the cluster"
        "\n    fix: give all of them the same key: one volume at /etc/munge, or --munge-key with one secret"
    ]


def test_a_daemon_that_ignores_the_signal_is_killed_after_its_time(watched: Watched) -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"
    watched.start(program, stop_s=0.1)
    until(lambda: watched.supervisor.last_lines("daemon"))
    watched.supervisor.stop("daemon")
    assert not watched.supervisor.alive("daemon")
    assert watched.lines == ["daemon did not end within 0.1 s, and is killed"]


def test_a_program_that_is_not_there_is_one_message() -> None:
    supervisor = Supervisor(lambda line: None)
    with pytest.raises(SlurmError, match="cannot start /nowhere/munged: No such file"):
        supervisor.start(Daemon("munged", lambda: ["/nowhere/munged"], ME))


def layout(folder: Path) -> Layout:
    (folder / "munge").mkdir()
    return Layout(munge_etc=folder / "munge")


def test_the_key_is_created_once_for_its_user_alone(tmp_path: Path) -> None:
    paths, me = layout(tmp_path), Users(ME, ME, ME)
    assert prepare_key(paths, me, "all", None) == "new key"
    key = paths.key.read_bytes()
    assert (len(key), paths.key.stat().st_mode & 0o777) == (128, 0o400)
    assert prepare_key(paths, me, "all", None) == "key of the volume"
    assert paths.key.read_bytes() == key


def test_a_node_waits_for_the_key_of_its_controller(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match=r"there is no munge key at .*\n    expected: the controller's key"):
        prepare_key(layout(tmp_path), Users(ME, ME, ME), "node", None, wait_s=0)


def test_a_secret_takes_the_place_of_the_key(tmp_path: Path) -> None:
    paths, secret = layout(tmp_path), tmp_path / "secret"
    secret.write_bytes(b"k" * 64)
    prepare_key(paths, Users(ME, ME, ME), "all", secret)
    assert paths.key.read_bytes() == b"k" * 64
    secret.write_bytes(b"short")
    with pytest.raises(SlurmError, match="has 5 bytes"):
        prepare_key(paths, Users(ME, ME, ME), "all", secret)
    with pytest.raises(SlurmError, match="cannot read the munge key"):
        prepare_key(paths, Users(ME, ME, ME), "all", tmp_path / "absent")
