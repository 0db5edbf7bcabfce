"""The AMI's scripts as text: what shellcheck and a reader can say without a machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[3] / "ami" / "scripts").glob("*.sh"))


def test_shellcheck_reports_nothing() -> None:
    program = shutil.which("shellcheck")
    if program is None:
        pytest.skip("no shellcheck on PATH (Debian's package of that name)")
    result = subprocess.run(
        [program, "--enable=all", "--exclude=SC2250,SC2310,SC2312", *SCRIPTS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_is_strict_and_states_its_purpose(script: Path) -> None:
    first, comment, strict = script.read_text(encoding="utf-8").splitlines()[:3]
    assert first == "#!/usr/bin/env bash"
    assert comment.startswith("# ")
    assert strict == "set -euo pipefail"
    assert script.stat().st_mode & 0o111
