"""Completion of tasks and flags by a real shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.console.completion import SCRIPTS
from paddock.tasks.program import main

PRINT = """
COMP_WORDS=({words}) COMP_CWORD={last}
_paddock_complete
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


LINES = {
    "./inv pl": ["plan"],
    "./inv lab.": ["lab.demo", "lab.down", "lab.status", "lab.up"],
    "./inv plan --st": ["--stack", "--strict"],
    "./inv gpu.render docker --ou": ["--output"],
}


@pytest.mark.parametrize("line", LINES)
def test_tasks_and_flags_begin_as_the_word_does(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inv", "--complete", "--", *line.split()]) == 0
    word = line.split()[-1]
    assert sorted(found for found in capsys.readouterr().out.split() if found.startswith(word)) == LINES[line]


@pytest.mark.parametrize("line", ["./inv lab.", "./inv plan --st"])
def test_bash_completes_tasks_and_flags(line: str, root: Path, tmp_path: Path) -> None:
    program = tmp_path / "inv"
    program.write_text(f'#!/bin/sh\ncd {root} && exec {sys.executable} -m paddock "$@"\n')
    program.chmod(0o755)
    script = SCRIPTS["bash"] + PRINT.format(words=line, last=len(line.split()) - 1)
    completed = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert sorted(completed.stdout.split()) == LINES[line], completed.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_are_read_without_error(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on PATH")
    script = tmp_path / "script"
    script.write_text(SCRIPTS[shell])
    completed = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stderr) == (0, "")


def test_a_shell_without_completion_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inv", "completion", "--shell", "fsh"]) == 2
    assert "expected: one of bash, zsh, fish\n    fix: did you mean fish?" in capsys.readouterr().err
