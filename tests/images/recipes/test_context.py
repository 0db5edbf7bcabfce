"""One content, one hash: on every machine, and whatever a checkout does to modes and dates."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.images.errors import BuildError, BuildInputError
from paddock.images.recipes import context, wheels
from tests.support import checkout

FACTS = {"BASE": "image", "platform": "linux/amd64"}


def tree(folder: Path) -> Path:
    (folder / "hooks").mkdir(parents=True)
    (folder / "Dockerfile").write_text("FROM scratch\n")
    (folder / "hooks" / "started.sh").write_text("#!/bin/sh\n")
    (folder / "hooks" / "started.sh").chmod(0o755)
    return folder


def staged(folder: Path, into: Path, facts: dict[str, str] = FACTS) -> str:
    context.stage({".": folder}, into)
    return context.content(into, facts)


def test_umask_and_dates_are_no_content(tmp_path: Path) -> None:
    first = staged(tree(tmp_path / "a"), tmp_path / "1")
    old = os.umask(0o077)
    try:
        other = tree(tmp_path / "b")
        os.utime(other / "Dockerfile", (1, 1))
        (other / "hooks" / "started.sh").chmod(0o700)
        (other / "__pycache__").mkdir()
        second = staged(other, tmp_path / "2")
    finally:
        os.umask(old)
    assert first == second
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "2").rglob("*")}
    assert modes == {"Dockerfile": "0o644", "hooks": "0o755", "started.sh": "0o755"}
    assert len({path.stat().st_mtime for path in (tmp_path / "2").rglob("*")}) == 1


@pytest.mark.parametrize("change", [
    lambda folder: (folder / "Dockerfile").write_text("FROM other\n"),
    lambda folder: (folder / "Dockerfile").rename(folder / "Containerfile"),
    lambda folder: (folder / "hooks" / "started.sh").chmod(0o644),
    lambda folder: (folder / "new").touch(),
])  # fmt: skip
def test_each_change_of_the_files_is_other_content(tmp_path: Path, change: Callable[[Path], object]) -> None:
    before = staged(tree(tmp_path / "a"), tmp_path / "1")
    change(tree(tmp_path / "b"))
    assert staged(tmp_path / "b", tmp_path / "2") != before


def test_arguments_are_content(tmp_path: Path) -> None:
    context.stage({".": tree(tmp_path / "a")}, tmp_path / "1")
    hashes = {context.content(tmp_path / "1", facts) for facts in (FACTS, {**FACTS, "BASE": "other"}, {})}
    assert len(hashes) == 3


def test_of_a_wheel_the_members_are_the_content(tmp_path: Path) -> None:
    def wheel(name: str, method: int, text: str) -> str:
        (tmp_path / name).mkdir()
        with zipfile.ZipFile(tmp_path / name / "a-1-py3-none-any.whl", "w", method) as file:
            file.writestr("a.py", text * 100)
        return context.content(tmp_path / name, {})

    stored = wheel("1", zipfile.ZIP_STORED, "pass\n")
    assert wheel("2", zipfile.ZIP_DEFLATED, "pass\n") == stored
    assert wheel("3", zipfile.ZIP_STORED, "done\n") != stored


def test_later_parts_go_over_earlier_ones(tmp_path: Path) -> None:
    tree(tmp_path / "a")
    context.stage({".": tmp_path / "a", "wheels/lock.txt": tmp_path / "a" / "Dockerfile"}, tmp_path / "1")
    assert (tmp_path / "1" / "wheels" / "lock.txt").read_text() == "FROM scratch\n"


def test_missing_files_and_links_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BuildInputError, match=r"gone is missing\n    expected: .*\n    fix: "):
        context.stage({"hooks": tmp_path / "gone"}, tmp_path / "1")
    (tree(tmp_path / "a") / "hooks" / "link").symlink_to("/etc/passwd")
    with pytest.raises(BuildInputError, match="hooks/link of the build context is a link"):
        context.stage({".": tmp_path / "a"}, tmp_path / "2")


def test_a_folder_without_space_is_reported(tmp_path: Path) -> None:
    (tree(tmp_path / "a") / "large").write_bytes(bytes(100_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(BuildError, match=r"File too large.*large'\n    expected: .*\n    fix: TMPDIR"):
            context.stage({".": tmp_path / "a"}, tmp_path / "1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_only_what_a_wheel_holds_changes_it(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither umask nor date does, nor what it leaves out."""
    project = checkout.copy(root, tmp_path / "project")

    def built(name: str) -> str:
        (tmp_path / name).mkdir()
        wheels.of_project(project, tmp_path / name)
        return context.content(tmp_path / name, {})

    def change(name: str, old: str, new: str) -> None:
        before = (project / name).read_text()
        assert old in before
        (project / name).write_text(before.replace(old, new, 1))

    first = built("1")
    change("README.md", "\n", "\n\n")
    change("pyproject.toml", '"ruff>=', '"ruff>0,>=')
    change("paddock/images/check.py", "\n", "\n\n")
    change("infra/program.py", "\n", "\n\n")
    old = os.umask(0o077)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    try:
        assert built("2") == first
    finally:
        os.umask(old)
    change("paddock/gpu/job_hooks/started.py", "\n", "\n\n")
    assert built("3") != first


def test_a_job_runs_hooks_and_command_from_the_wheel(tmp_path: Path, root: Path) -> None:
    with zipfile.ZipFile(wheels.of_project(root, tmp_path)) as wheel:
        wheel.extractall(tmp_path / "installed")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )

    statement = "for module in walk_packages(paddock.gpu.__path__, 'paddock.gpu.'): __import__(module.name)"
    whole = run("-c", f"import paddock.gpu\nfrom pkgutil import walk_packages\n{statement}")
    assert whole.returncode == 0, whole.stderr
    assert run("-m", "paddock", "catalog").returncode == 0
    absent = run("-m", "paddock", "plan")
    assert absent.returncode == 2
    assert "No module named 'paddock.plan'\n    expected: a checkout" in absent.stderr


def test_a_folder_that_is_no_checkout_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BuildInputError, match="is not a checkout of Paddock"):
        wheels.of_project(tmp_path, tmp_path)


def test_the_wheels_of_a_lock_are_downloaded_once(tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = wheels.of_lock(lock, "amd64", tmp_path / "cache")
    assert [wheel.name for wheel in first.iterdir()] == ["a-1-py3-none-any.whl"]
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert wheels.of_lock(lock, "amd64", tmp_path / "cache") == first
    with pytest.raises(BuildError):
        wheels.of_lock(lock, "arm64", tmp_path / "cache")


def test_a_wheel_with_another_sum_is_refused_and_not_kept(tmp_path: Path, lock: Path) -> None:
    lock.write_text(lock.read_text().replace("sha256:", "sha256:" + "0" * 64 + " --hash=sha256:")[: 7 + 14 + 64] + "\n")
    with pytest.raises(BuildError, match=r"cannot download the wheels of base\.txt for Python 3\.12: .*DO NOT MATCH"):
        wheels.of_lock(lock, "amd64", tmp_path / "cache")
    assert list((tmp_path / "cache" / "wheels").iterdir()) == []


def test_a_missing_network_is_reported(tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(BuildError, match=r"package index cannot be reached .*\n.*\n    fix: run again; .*HTTPS_PROXY"):
        wheels.of_lock(lock, "amd64", tmp_path / "cache")
