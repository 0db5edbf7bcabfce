"""What a test needs to come in by the door."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from paddock.build.docker import folders
from paddock.build.recipes import wheels
from tests.support import checkout, workflow
from tests.support.door import Door
from tests.support.operation import Operation


@pytest.fixture
def inv(root: Path, tmp_path: Path) -> Door:
    """Return what calls `./inv` from an empty folder with an empty HOME."""
    return Door(root, tmp_path)


@pytest.fixture
def project(inv: Door, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout of its own, for whose lock, an empty one, an earlier run has downloaded the wheels."""
    folder = checkout.copy(root, tmp_path / "project")
    lock = folder / "locks" / "base.txt"
    lock.write_text("# nothing\n")
    workflow.checkout_of(folder, root, sys.executable)
    monkeypatch.setattr(wheels, "_download", lambda pip, lock, python, architecture, into: into.mkdir(exist_ok=True))
    for architecture in ("amd64", "arm64"):
        wheels.of_lock(lock, architecture, folders.cache({"HOME": str(inv.home)}))
    return folder


@pytest.fixture
def operation(inv: Door, root: Path, tmp_path: Path) -> Iterator[Operation]:
    """Yield a fleet whose counterparts a test chooses."""
    with ExitStack() as served:
        yield Operation(inv, root, tmp_path, served)
