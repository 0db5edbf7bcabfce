"""The processor's smoke test in a fresh clone with an empty home: it fetches what it needs, and torch is not of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

_KEPT = ("PIP_", "UV_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


def test_a_clone_tests_the_processor_without_torch(root: Path, tmp_path: Path) -> None:
    clone, home = tmp_path / "paddock", tmp_path / "home"
    home.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "paddock", clone / "paddock", ignore=ignored)
    shutil.copytree(root / "locks", clone / "locks")
    for name in ("inv", "pyproject.toml"):
        shutil.copy(root / name, clone)
    environ = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
    environ |= {"HOME": str(home), "PATH": os.environ["PATH"]}
    # Tier 3 with a second of steady load has all stages of the processor.
    command = [str(clone / "inv"), "smoke", "--cpu", "--tier", "3", "--soak", "1", "--must-run"]
    finished = subprocess.run(command, cwd=clone, env=environ, capture_output=True, text=True, timeout=900)
    if "The package index cannot be reached" in finished.stderr:
        pytest.skip("the package index cannot be reached")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "locks/bench.txt" in finished.stderr
    assert "locks/torch.txt" not in finished.stderr
    assert "all-reduce of 2" in finished.stdout
    assert not list(clone.glob(".venv/lib/python*/site-packages/torch"))
