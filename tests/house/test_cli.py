"""What the program says when something is wrong, and how little it loads to list the tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from invoke import Collection, task
from invoke.exceptions import Exit

from paddock import cli


class UserMistake(Exception):
    exit_code = 2


def _raising(error: BaseException) -> Collection:
    @task
    def act(c):  # type: ignore[no-untyped-def]
        """Act."""
        raise error

    return Collection(act)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserMistake("Pulumi.dev.yaml:3: no such key"), 2, "Pulumi.dev.yaml:3: no such key\n"),
        (Exit("not now", 4), 4, "not now\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (ZeroDivisionError("by zero"), 70, "ZeroDivisionError: by zero\nThis is a bug in paddock; PADDOCK_DEBUG=1"),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "namespace", _raising(error))
    assert cli.main(["inv", "act"]) == code
    assert capsys.readouterr().err.startswith(said)


def test_debugging_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "namespace", _raising(ZeroDivisionError()))
    monkeypatch.setenv("PADDOCK_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["inv", "act"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tset"], "No idea what 'tset' is! Did you mean 'test'?"),
        (["zzzzz"], "No idea what 'zzzzz' is! 'inv --list' shows the tasks."),
        (["lint", "--fxi"], "No idea what '--fxi' is! Did you mean '--fix'?"),
    ],
)
def test_a_typo_is_bad_input_and_gets_a_suggestion(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inv", *words]) == 2
    assert capsys.readouterr().err.strip() == said


def test_no_task_lists_the_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inv"]) == 0
    assert "lint" in capsys.readouterr().out


def test_every_task_has_a_line_of_help() -> None:
    from paddock.tasks import namespace

    assert all((namespace[name].__doc__ or "").strip() for name in namespace.task_names)


def test_listing_the_tasks_loads_no_library_of_a_task(root: Path) -> None:
    heavy = {"pulumi", "pulumi_aws", "boto3", "torch", "numpy", "ray", "pydantic", "rich", "pytest"}
    program = "import sys; from paddock.cli import main; main(['inv', '--list']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert not heavy & set(done.stderr.split())
    assert "test" in done.stdout


def test_a_reader_that_leaves_is_no_error(root: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", '"$0" -m paddock --list | true; echo ${PIPESTATUS[0]}', sys.executable],
        cwd=root,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # buffered output meets the closed pipe only at the end
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.strip() in {"0", "141"}
