"""A run with engines leaves out what passed before, while the files are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.record import state_of_files

CONFTEST = "from tests.conftest import pytest_addoption, pytest_collection_modifyitems, pytest_sessionfinish\n"
TESTS = """\
import os
import pytest

def test_passes(): pass

@pytest.mark.xdist_group("group")
@pytest.mark.parametrize("name", ["a@b"])
def test_passes_in_a_group(name): pass

def test_skips():
    if "ENGINE" not in os.environ:
        pytest.skip("no engine")

def test_fails():
    assert "ENGINE" in os.environ

@pytest.fixture
def broken():
    yield
    assert "ENGINE" in os.environ

def test_fails_afterwards(broken): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = xdist_group\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "all")
    return tmp_path


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


def run(root: Path, project: Path, *options: str, **environ: str) -> str:
    """Return the last line of a run."""
    command = [sys.executable, "-m", "pytest", "-p", "xdist", *options]
    env = {**os.environ, "PYTHONPATH": str(root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environ}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.e2e
def test_what_passed_is_left_out_until_a_file_changes(root: Path, project: Path) -> None:
    grouped = ("-n1", "--dist", "loadgroup")
    assert "1 failed, 3 passed, 1 skipped, 1 error" in run(root, project, *grouped)
    assert " 3 passed" in run(root, project, "--not-passed", *grouped, ENGINE="yes")
    (project / "test_it.py").write_text(TESTS + "\n")
    assert " 5 passed" in run(root, project, "--not-passed", ENGINE="yes")


def test_the_state_of_files_is_that_of_what_git_knows(project: Path) -> None:
    before = state_of_files(project)
    (project / "__pycache__").mkdir()
    (project / "__pycache__/x").touch()
    assert state_of_files(project) == before
    (project / "test_it.py").write_text("")
    assert state_of_files(project) not in (before, None)


def test_without_git_no_state_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert state_of_files(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert state_of_files(tmp_path) is None
