"""The lab ends what it started, and nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from paddock.console.progress import Progress
from paddock.lab import processes
from paddock.lab.control_plane import servers, state
from paddock.lab.control_plane.state import State
from paddock.lab.errors import LabError, LabInputError
from paddock.process import Process, boot_id

SLEEP = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]


def start(tmp_path: Path, command: list[str], lab: Path | None = None) -> Process:
    log = tmp_path / "log"
    process = processes.start(command, log, lambda _: None, {**os.environ, processes.MARK: str(lab)})
    while b"here" not in log.read_bytes():
        assert process.alive
    return process


def test_a_process_has_its_own_session_and_is_ended(tmp_path: Path) -> None:
    process = start(tmp_path, SLEEP)
    assert process.alive
    assert os.getsid(process.pid) == process.pid
    processes.stop([process])
    assert not process.alive


def test_it_is_recorded_before_anyone_else_hears_of_it(tmp_path: Path) -> None:
    recorded: list[Process] = []
    process = processes.start(SLEEP, tmp_path / "log", recorded.append, os.environ)
    assert recorded == [process]
    processes.stop(recorded)


def test_a_program_that_cannot_start_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"cannot start .*/nothing: No such file"):
        processes.start([tmp_path / "nothing"], tmp_path / "log", lambda _: None, {})


def test_state_survives_writing_and_reading(tmp_path: Path) -> None:
    state_ = State({"kube-apiserver": 1234}, {"etcd": Process(1, "a:2")}, "a")
    state.write(tmp_path, state_)
    assert state.read(tmp_path) == state_
    assert (tmp_path / "lab.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ('{"version": 1, "ports": {"etcd', "Unterminated string"),
        ("[]", "list indices"),
        ('{"version": 1, "processes": {}}', "'ports'"),
        ('{"version": 1, "processes": {"etcd": {}}, "ports": {}, "boot": ""}', "'pid'"),
        ('{"version": 9, "processes": {}, "ports": {}, "boot": ""}', "of version 9, and this is of version 1"),
    ],
)
def test_an_unreadable_state_says_how_to_remove_it(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "lab.json").write_text(text)
    with pytest.raises(LabError, match=rf"is not a lab's state: .*{message}.*\n    fix: ./inv lab.down"):
        servers.status(tmp_path)
    process = start(tmp_path, SLEEP, lab=tmp_path)
    assert servers.down(tmp_path) == (str(process.pid),)
    assert not process.alive
    assert not (tmp_path / "lab.json").exists()


def test_what_a_lab_has_started_is_found_by_its_mark(tmp_path: Path) -> None:
    lab = tmp_path / "dev"
    started = [start(tmp_path, SLEEP, lab=folder) for folder in (lab, lab / "engine", tmp_path / "dev-2")]
    try:
        assert {process.pid for process in processes.marked(lab)} == {process.pid for process in started[:2]}
    finally:
        processes.stop(started)


def test_the_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "some" / "lab"
    folder.mkdir(parents=True, mode=0o755)
    state.prepare(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_others_keep_in_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    (tmp_path / "mine.txt").touch()
    state.remove(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "x" * 70])
def test_a_name_never_leads_out_of_the_folder_of_labs(name: str) -> None:
    with pytest.raises(LabInputError, match="cannot be a lab's name"):
        state.folder(name)


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert state.folder("dev") == Path("/state/paddock/lab/dev")
    monkeypatch.setenv("PADDOCK_LAB_STATE", "/elsewhere")
    assert state.folder("dev") == Path("/elsewhere/dev")


def test_two_commands_do_not_change_one_lab_at_once(tmp_path: Path) -> None:
    with state.locked(tmp_path), pytest.raises(LabInputError, match="another command"), state.locked(tmp_path):
        pass


def test_a_state_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match=r"cannot write .*: Not a directory\n    fix: make room there"):
        state.write(tmp_path / "file", State())


@pytest.mark.parametrize(("boot", "survives"), [(boot_id(), True), ("another", False)])
def test_objects_outlive_a_kill_but_not_a_start_of_the_machine(tmp_path: Path, boot: str, survives: bool) -> None:
    state.write(tmp_path, State({}, {"etcd": Process(1, "long ago")}, boot))
    (tmp_path / "etcd").mkdir()
    (tmp_path / "kubeconfig").touch()
    servers.clean_up(servers.status(tmp_path), Progress(quiet=True))
    assert (tmp_path / "etcd").exists() == survives
    assert not (tmp_path / "kubeconfig").exists(), "who waits for it would take the lab for ready"


def test_without_a_lab_nothing_is_ended_and_nothing_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "never"
    assert servers.down(folder) == ()
    assert not servers.status(folder).exists
    assert not folder.exists()
