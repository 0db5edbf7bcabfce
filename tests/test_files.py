from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from paddock import files


def test_a_file_is_replaced_with_the_mode_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")
    files.write(path, "after", 0o600)
    assert path.read_text() == "after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_error_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), files.replacing(path) as part:
        part.write(b"half" * (1 // 0))
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_second_process_waits_for_no_lock_unless_asked(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with files.locked(lock), pytest.raises(BlockingIOError), files.locked(lock):
        pass
    with files.locked(lock, wait=True):
        pass


def test_a_file_system_without_locks_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with files.locked(tmp_path / ".lock"):
        pass
