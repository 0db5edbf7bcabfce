"""Files of a job on disk and in shared memory, and which of them are deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from paddock.gpu.job_hooks import completed, wipe
from paddock.gpu.job_hooks.environment import PodJob
from tests.support.job_machine import HOSTS, OWN, machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runners are Linux")


def test_wiping_removes_files_and_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    temp = tmp_path / "_temp"
    for name in ("_runner_file_commands", "_paddock", "go/pkg/mod"):
        (temp / name).mkdir(parents=True)
        (temp / name / "file").write_text("x" * 5000)
    (temp / "go/pkg/mod").chmod(0o555)
    (temp / "link").symlink_to(outside)
    wiped = wipe.temporary(temp, temp / "_paddock", 5)
    assert (wiped.files, wiped.remaining) == (2, 0)
    assert wiped.size >= 5000
    assert sorted(path.name for path in temp.iterdir()) == ["_paddock", "_runner_file_commands"]
    assert (outside / "kept").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_of_others_stay(tmp_path: Path) -> None:
    for name in ("own", "anothers"):
        (tmp_path / name).touch()
    os.chown(tmp_path / "anothers", 65534, 65534)
    assert wipe.wipe(tmp_path, 5).files == 1
    assert (tmp_path / "anothers").exists()


def test_what_is_mounted_inside_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of its file system, made up: to mount one takes rights."""
    (tmp_path / "data/set").mkdir(parents=True)
    (tmp_path / "data/set/kept").touch()
    real = Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: SimpleNamespace(st_dev=real(path).st_dev + 1))
    assert wipe.wipe(tmp_path, 5).files == 0
    assert (tmp_path / "data/set/kept").exists()


def test_only_the_runners_own_folder_is_wiped(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert wipe.temporary(tmp_path, tmp_path / "_paddock", 5) is None
    (tmp_path / "_temp").symlink_to(tmp_path)
    assert wipe.temporary(tmp_path / "_temp", tmp_path / "_paddock", 5) is None
    assert (tmp_path / "file").exists()


def nest(folder: Path, name: str, depth: int) -> None:
    """Folders in each other, deeper than a path may be long."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_deeply_nested_folders_are_reported(tmp_path: Path) -> None:
    nest(tmp_path, "a", 1100)
    try:
        wiped = wipe.wipe(tmp_path, 5)
        assert wiped.remaining == 1
        assert "deep" in wiped.why
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "a")], check=True)


def test_a_name_that_a_job_gave_a_file_is_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    temp = tmp_path / "_temp"
    temp.mkdir()
    name = "\n::error::\udcff" + "x" * 200
    nest(temp, name, 30)
    try:
        completed.run(environ={"PADDOCK_GPUS": "1", "RUNNER_TEMP": str(temp)}, root=machine(tmp_path, OWN))
    finally:
        subprocess.run(["rm", "-rf", str(temp)], check=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("Wiped the runner's temporary files")
    assert " ::error::?xx" in line


def test_wiping_ends_in_time(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    wiped = wipe.wipe(tmp_path, -1)
    assert (tmp_path / "a").exists()
    assert wiped.remaining == 1


@pytest.mark.parametrize(("namespace", "container", "sharing", "wiped"), [
    (OWN, True, "timeSlicing", True),
    (OWN, True, "mps", False),
    (HOSTS, True, "", False),
    (OWN, False, "", False),
])  # fmt: skip
def test_shared_memory_is_wiped_where_it_is_the_pods_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespace: str, container: bool, sharing: str, wiped: bool
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    root = machine(tmp_path, namespace)
    (root / "dev/shm").mkdir(parents=True)
    (root / "dev/shm/nccl-1").write_text("x")
    if container:
        (root / ".dockerenv").touch()
    job = PodJob.from_environ({"PADDOCK_GPU_SHARING": sharing})
    assert (wipe.shared_memory(job, 5, root) is not None) == wiped
    assert (root / "dev/shm/nccl-1").exists() != wiped
