"""What looks at a change: `check --fast` takes its files from git, and its tests from their folders."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from paddock import changed


def test_every_room_has_its_doors(root: Path) -> None:
    rooms = {path.parent.name for path in (root / "paddock").glob("*/__init__.py")} | {"infra"}
    assert rooms == set(changed.DOORS)
    named = {f"tests/doors/test_{door}.py" for doors in changed.DOORS.values() for door in doors}
    elsewhere = {path for paths in (*changed.ELSEWHERE.values(), changed.PROSE, changed.EVERY_MODULE) for path in paths}
    assert sorted(path for path in named | elsewhere if not (root / path).exists()) == []


@pytest.mark.parametrize(
    ("name", "first", "among"),
    [
        ("paddock/gpu/leases/run.py", "tests/gpu/leases/test_run.py", ["tests/gpu", "tests/doors/test_gpu.py"]),
        ("infra/versions.py", "tests/infra", ["tests/doors/test_fleet.py"]),
        ("paddock/clock.py", "tests/test_clock.py", ["tests/house/test_rooms.py"]),
        ("tests/support/waiting.py", "tests/gpu/leases/test_queue.py", []),
        ("tests/gpu/test_mcp.py", "tests/gpu/test_mcp.py", []),
        ("tests/plan/golden/dev.json", "tests/plan/golden", []),
        ("docs/plan.md", "tests/house/test_docs.py", ["tests/site"]),
        ("inv", "tests/house/test_bootstrap.py", []),
    ],
)
def test_the_nearest_tests_come_first(root: Path, name: str, first: str, among: list[str]) -> None:
    chosen = changed.tests(root, [name])
    assert first in chosen[: 1 if name != "tests/support/waiting.py" else None]
    assert set(among) <= set(chosen)
    assert not [path for path in chosen if "/e2e/" in path]


def test_files_of_the_tree_and_new_ones_count(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        user = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *user, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / ".gitignore").write_text("build\n")
    (tmp_path / "kept.py").touch()
    (tmp_path / "gone.py").touch()
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    assert changed.files(tmp_path, "HEAD") == []
    (tmp_path / "gone.py").unlink()
    (tmp_path / "kept.py").write_text("x = 1\n")
    (tmp_path / "with space.md").touch()
    (tmp_path / "build").touch()
    assert changed.files(tmp_path, "HEAD") == ["gone.py", "kept.py", "with space.md"]
    with pytest.raises(changed.ChangedError, match=r"--since HAED: .*\n.*a commit, a branch or a tag"):
        changed.files(tmp_path, "HAED")
    (tmp_path / ".git").rename(tmp_path / "moved")
    with pytest.raises(changed.ChangedError, match=r"not a git checkout: .*\n    fix: `./inv check`"):
        changed.files(tmp_path, "HEAD")
