"""What a test needs to come in by the door."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from paddock.images.docker import folders
from paddock.images.recipes import wheels
from paddock.tasks.program import main
from tests.support import checkout, workflow
from tests.support.door import Door, Here
from tests.support.operation import Operation

LOCKS = ("base.txt", "gateway.txt")
"""Locks whose wheels are put into images."""


@pytest.fixture
def inv(root: Path, tmp_path: Path) -> Door:
    """Return what calls `./inv` from an empty folder with an empty HOME."""
    return Door(root, tmp_path)


@pytest.fixture(scope="session")
def committed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout in git whose lock is an empty one."""
    folder = checkout.copy(root, tmp_path_factory.mktemp("committed") / "project")
    for lock in LOCKS:
        (folder / "locks" / lock).write_text(f"# nothing of {lock}\n")
    workflow.checkout_of(folder, root, sys.executable)
    return folder


@pytest.fixture
def project(inv: Door, committed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout of its own, for whose lock an earlier run has downloaded the wheels."""

    def copied(source: str, target: str) -> object:  # nobody writes into a module
        return os.link(source, target) if source.endswith(".py") else shutil.copy2(source, target)

    folder = shutil.copytree(committed, tmp_path / "project", copy_function=copied)
    monkeypatch.setattr(wheels, "_download", lambda pip, lock, python, architecture, into: into.mkdir(exist_ok=True))
    for lock in LOCKS:
        for architecture in ("amd64", "arm64"):
            wheels.of_lock(folder / "locks" / lock, architecture, folders.cache({"HOME": str(inv.home)}))
    return folder


@pytest.fixture
def here(inv: Door, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Return what calls a task of the checkout in this process, and returns exit code, output and errors."""

    def call(*words: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
        own = {"PADDOCK_PROGRAM": "./inv", "PADDOCK_CWD": str(inv.folder), **inv.environment(env)}
        for name, value in own.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(root)
        code = main(["inv", *words])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def operation(inv: Door, root: Path, tmp_path: Path) -> Iterator[Operation]:
    """Yield a fleet whose counterparts a test chooses."""
    with ExitStack() as served:
        yield Operation(inv, root, tmp_path, served)
