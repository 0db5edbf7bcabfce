"""The documentation's tasks, by their doors."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.door import Door


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """Return a copy of what pages are made of, which a task may write into."""
    folder = tmp_path / "checkout"
    for part in ("docs", "benchmarks", "paddock", "infra", "policy", "images", "ami", "runners", "tests", ".github"):
        shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in root.iterdir():
        if file.is_file():
            shutil.copy2(file, folder)
    return folder


@pytest.mark.e2e
@pytest.mark.door("docs", "Zensical")
def test_site_is_built(inv: Door, checkout: Path) -> None:
    built = inv("docs", env={"PADDOCK_ROOT": str(checkout)})
    assert built.returncode == 0, built.stderr
    assert built.stdout == "build/site/index.html\n"
    assert (checkout / "build/site/tasks.html").is_file()


@pytest.mark.e2e
@pytest.mark.door("docs.generate", "the code of this checkout")
def test_generated_pages_are_written_anew(inv: Door, root: Path, checkout: Path) -> None:
    for name in ("rules.md", "configuration.md", "method.schema.json"):
        (checkout / "docs" / name).write_text("old\n")
    written = inv("docs.generate", env={"PADDOCK_ROOT": str(checkout)})
    assert written.returncode == 0, written.stderr
    pages = (path for path in (checkout / "docs").rglob("*") if path.is_file())
    names = [path.relative_to(checkout) for path in pages]
    assert [name for name in names if (checkout / name).read_bytes() != (root / name).read_bytes()] == []


@pytest.mark.e2e
@pytest.mark.door("docs", "a checkout that cannot be written")
@pytest.mark.door("docs.generate", "a checkout that cannot be written")
@pytest.mark.door("init", "a checkout that cannot be written")
@pytest.mark.parametrize("words", ["docs", "docs.generate", "init --schema --write"])
def test_checkout_that_cannot_be_written_stays_as_it_is(inv: Door, root: Path, words: str) -> None:
    bound = f"mount --bind '{root}' '{root}' && mount -o remount,ro,bind '{root}' && cd '{inv.folder}' && exec \"$@\""
    command = ["unshare", "--mount", "sh", "-c", bound, "sh", *inv.command(tuple(words.split()))]
    if os.geteuid() or subprocess.run([*command[:4], bound, "sh", "true"], capture_output=True).returncode:
        pytest.skip("only root may mount a folder again, read-only")
    done = subprocess.run(command, env=inv.environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    if words == "docs":
        page = Path(done.stdout.strip())
        assert page.is_relative_to(inv.home / ".cache/paddock")
        assert page.is_file()
