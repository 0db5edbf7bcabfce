"""Downloads into the runner's image have the checksum that was declared."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "images" / "runner-gpu" / "fetch.sh"


def fetch(url: str, sha256: str, file: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("curl") is None:
        pytest.skip("no curl on PATH")
    return subprocess.run(["bash", SCRIPT, url, sha256, file], capture_output=True, text=True, check=False)


def test_a_file_with_the_declared_checksum_is_accepted(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_bytes(b"runner")
    result = fetch(there.as_uri(), hashlib.sha256(b"runner").hexdigest(), tmp_path / "here")
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "here").read_bytes() == b"runner"


def test_a_wrong_checksum_is_reported(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_bytes(b"other")
    result = fetch(there.as_uri(), "0" * 64, tmp_path / "here")
    assert result.returncode == 1
    message, fix = result.stderr.splitlines()
    actual = hashlib.sha256(b"other").hexdigest()
    assert message == f"paddock: wrong checksum of {there.as_uri()}: expected sha256 {'0' * 64}, found {actual}"
    assert fix.startswith("    fix: ")
    assert "ACTIONS_RUNNER_SHA256 of infra/versions.py or --build-arg RUNNER_SHA256=" in fix


def test_a_missing_file_is_reported_with_a_fix(tmp_path: Path) -> None:
    result = fetch((tmp_path / "nowhere").as_uri(), "0" * 64, tmp_path / "here")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("    fix: see that a build reaches it, or name a mirror")
