"""Programs of others: in environments that all checkouts of a user share, and the one that runs the tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from paddock import house


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the calls of uv, which a stand-in answers: what a lock names is installed as an empty program."""
    made: list[str] = []

    def run(*command: str) -> None:
        made.append(command[1])
        if command[1] == "venv":
            Path(command[-1], "bin").mkdir(parents=True)
        else:
            text = Path(command[-1]).read_text()
            if text == "broken":
                raise house.CheckFailed("no such package")
            Path(command[-3]).with_name(text).touch()

    (tmp_path / "locks/oracles").mkdir(parents=True)
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "_run", run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def lock(root: Path, text: str) -> None:
    (root / "locks/oracles/tool.txt").write_text(text)


def kept(root: Path) -> int:
    return len(os.listdir(root / "cache/paddock/programs"))


def test_a_program_is_installed_once_for_each_lock(calls: list[str], tmp_path: Path) -> None:
    lock(tmp_path, "tool")
    first = house.programs("tool")
    assert house.oracle("tool") == first / "tool"
    assert (first / "tool").is_file()
    assert calls == ["venv", "pip"]
    lock(tmp_path, "other")
    assert house.programs("tool") != first
    lock(tmp_path, "tool")
    assert (house.programs("tool"), calls) == (first, ["venv", "pip"] * 2)


def test_a_program_that_cannot_be_installed_leaves_nothing(calls: list[str], tmp_path: Path) -> None:
    lock(tmp_path, "broken")
    for _ in range(2):
        with pytest.raises(house.CheckFailed):
            house.programs("tool")
    assert (calls, kept(tmp_path)) == (["venv", "pip"] * 2, 0)


def test_two_runs_at_once_keep_what_the_faster_one_installed(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(tmp_path, "tool")
    run, faster = house._run, list[Path]()

    def overtaken(*command: str) -> None:
        run(*command)
        if command[1] == "pip" and not faster:
            faster.append(tmp_path)
            faster[0] = house.programs("tool")
            (faster[0] / "of the faster").touch()

    monkeypatch.setattr(house, "_run", overtaken)
    assert [house.programs("tool")] == faster
    assert (faster[0] / "of the faster").is_file()
    assert kept(tmp_path) == 1


CRASH = """
import os, pytest, time

@pytest.mark.parametrize("number", range(12))
def test_it(number):
    time.sleep(0.05)
    if number == 3:
        os.abort()
"""


def test_a_test_that_crashes_ends_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(house, "_run", lambda *command: commands.append(command))
    house._pytest("-n2", "-p", "no:cacheprovider", "test_crash.py")
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_crash.py").write_text(CRASH)
    done = subprocess.run(commands[0], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "crashed while running 'test_crash.py::test_it[3]'" in done.stdout
