"""The library of products in C: kept for the next time, and never loaded where another user could have written it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.packages import need

need("torch")

from paddock.serve.own.packing import native

pytestmark = pytest.mark.explore


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Returns how often the library is compiled when it is asked for, in a cache of its own."""
    if native.kernels() is None:
        pytest.skip("no C compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls: list[object] = []
    run = subprocess.run

    def counted(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        return run(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", counted)

    def ask() -> int:
        native.kernels.cache_clear()
        before = len(calls)
        assert native.kernels() is not None
        return len(calls) - before

    yield ask
    native.kernels.cache_clear()


def library(folder: Path) -> Path:
    (path,) = (folder / "paddock").glob("*.so")
    return path


def test_it_is_compiled_once(compiled: Callable[[], int], tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        assert [compiled(), compiled()] == [1, 0]
    finally:
        os.umask(before)
    assert library(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_file_that_others_may_write_is_compiled_anew(compiled: Callable[[], int], tmp_path: Path) -> None:
    compiled()
    library(tmp_path).write_bytes(b"not ours")
    library(tmp_path).chmod(0o666)
    assert [compiled(), compiled()] == [1, 0]


def test_a_folder_that_others_may_write_becomes_ones_own(compiled: Callable[[], int], tmp_path: Path) -> None:
    (tmp_path / "paddock").mkdir()
    (tmp_path / "paddock").chmod(0o777)
    assert [compiled(), compiled()] == [1, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_file_is_not_loaded(compiled: Callable[[], int], tmp_path: Path) -> None:
    compiled()
    os.chown(library(tmp_path), 12345, -1)
    assert not native.is_own(library(tmp_path))
    assert [compiled(), compiled()] == [1, 0]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "other.so"
    target.write_bytes(b"")
    link = tmp_path / "gemv.so"
    link.symlink_to(target)
    assert not native.is_own(link)


def test_a_cache_that_cannot_be_written_costs_a_compilation_each_time(
    compiled: Callable[[], int], tmp_path: Path
) -> None:
    (tmp_path / "paddock").write_text("a file")
    assert [compiled(), compiled()] == [1, 1]
