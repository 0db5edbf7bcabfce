"""Error messages of the program, and the few imports of the list of tasks."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from invoke import Collection, task
from invoke.exceptions import Exit

from paddock import cli
from paddock.errors import PaddockError
from paddock.tasks import help, namespace
from paddock.tasks.repository import reference
from paddock.terminal import JSON_HELP, console


class UserMistake(PaddockError):
    exit_code = 2


def _raising(error: BaseException) -> Collection:
    @task
    def act(c):  # type: ignore[no-untyped-def]
        """Act."""
        raise error

    return Collection(act)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserMistake("Pulumi.dev.yaml:3: no such key"), 2, "Pulumi.dev.yaml:3: no such key\n"),
        (Exit("not now", 4), 4, "not now\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (
            ModuleNotFoundError("No module named 'infra'", name="infra"),
            2,
            "this installation lacks a part of the project: No module named 'infra'\n    expected: a checkout; ",
        ),
        (ZeroDivisionError("by zero"), 70, "ZeroDivisionError: by zero\nThis is a bug in paddock; PADDOCK_DEBUG=1"),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("paddock.tasks.program.namespace", _raising(error))
    assert cli.main(["inv", "act"]) == code
    assert capsys.readouterr().err.startswith(message)


def test_an_interrupt_that_a_finaliser_swallows_comes_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    @task
    def act(c):  # type: ignore[no-untyped-def]
        """Act."""
        Interrupted()
        time.sleep(60)

    hook = sys.unraisablehook
    monkeypatch.setattr("paddock.tasks.program.namespace", Collection(act))
    assert cli.main(["inv", "act"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert sys.unraisablehook is hook


def test_debugging_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.tasks.program.namespace", _raising(ZeroDivisionError()))
    monkeypatch.setenv("PADDOCK_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["inv", "act"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tset"], "No idea what 'tset' is! Did you mean test?"),
        (["zzzzz"], "No idea what 'zzzzz' is! `./inv --list` shows the tasks."),
        (["lint", "--fxi"], "No idea what '--fxi' is! Did you mean --fix?"),
        (
            ["bench.compare", "--json", "old.json", "new.json"],
            "bench.compare needs NEW\n    expected: ./inv bench.compare OLD NEW [flags]"
            "\n    fix: write --json last: the word behind it was taken for a file",
        ),
        (
            ["gpu.run", "python", "x.py"],
            "No idea what 'python' is! The program to run stands after --: gpu.run --gpus 1 -- python train.py",
        ),
    ],
)
def test_a_typo_is_bad_input_and_gets_a_suggestion(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_PROGRAM", "./inv")
    assert cli.main(["inv", *words]) == 2
    assert capsys.readouterr().err.strip() == message


def test_the_words_after_the_dashes_are_those_of_the_argument(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inv", "gpu.run", "--", "no such program", "x"]) == 2
    assert "there is no program 'no such program'" in capfd.readouterr().err


def test_the_greeting_names_five_things_with_their_first_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_PROGRAM", "./inv")
    assert cli.main(["inv"]) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^([A-Z][\w ]+): .*\n  (\./inv [\w.]+(?: MODEL)?)  ", printed, re.M) == [
        ("Fleet", "./inv plan"),
        ("Lab", "./inv lab.up"),
        ("GPUs", "./inv gpu.list"),
        ("Serve and bench", "./inv serve.plan MODEL"),
        ("Slurm", "./inv configure"),
    ]
    assert re.findall(r"^  (\./inv (?:--list|TASK --help))  ", printed, re.M) == ["./inv --list", "./inv TASK --help"]


def test_the_list_begins_with_the_things_of_the_greeting(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inv", "--list"]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line and not line.startswith(" ")]
    assert [heading.partition(":")[0].partition(",")[0] for heading in headings[:-1]] == [
        *("Fleet", "Lab", "GPUs", "Serve and bench", "Slurm"),
        *("Images", "Facts", "Maintenance of this repository"),
    ]


@pytest.mark.parametrize("words", [[], ["--list"]], ids=["alone", "list"])
def test_help_fits_a_terminal_of_eighty_columns(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["inv", *words]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize("name", namespace.task_names)
def test_every_task_names_its_flags_and_their_defaults(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["paddock", name, "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith(f"paddock {name}")
    for argument in namespace[name].get_arguments():
        flag = argument.names[0]
        assert (flag.upper() if argument.positional else f"--{flag}") in printed
        assert argument.help, f"{name} --{flag} has no help"
        assert flag != "json" or (argument.kind, argument.default, argument.help) == (str, None, JSON_HELP)
        if argument.default and argument.kind is not bool:
            default = f"{argument.default}".removesuffix(".0")
            assert f"(default: {default})" in printed or "by default" in argument.help, flag


def test_every_task_stands_in_one_group() -> None:
    listed = [name for names in help.groups().values() for name in names]
    assert sorted(listed) == sorted(help.tasks()), "paddock.tasks.GROUPS says where a task is listed"


def test_the_page_of_all_tasks_is_current(root: Path) -> None:
    assert (root / reference.PATH).read_text(encoding="utf-8") == reference.page(), "run: ./inv docs.generate"


def test_json_is_printed_alone_and_written_beside_the_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    for words in (["catalog.instances", "--gpu", "t4"], ["gpu.list"], ["smoke", "--tier", "1"]):
        cli.main(["inv", *words, "--json"])
        printed = json.loads(capsys.readouterr().out)
        cli.main(["inv", *words, "--json", "out.json"])
        text, written = capsys.readouterr().out, json.loads((tmp_path / "out.json").read_text())
        assert text
        assert not text.startswith("{")
        assert written.keys() == printed.keys()


def test_listing_the_tasks_loads_no_library_of_a_task(root: Path) -> None:
    heavy = {"pulumi", "pulumi_aws", "boto3", "torch", "numpy", "ray", "pydantic", "rich", "pytest"}
    program = "import sys; from paddock.cli import main; main(['inv', '--list']); print(*sys.modules, file=sys.stderr)"
    completed = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert not heavy & set(completed.stderr.split())
    assert "test" in completed.stdout


def test_a_reader_that_leaves_is_no_error(root: Path) -> None:
    completed = subprocess.run(
        ["bash", "-c", '"$0" -m paddock --list | true; echo ${PIPESTATUS[0]}', sys.executable],
        cwd=root,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # buffered output meets the closed pipe only at the end
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stderr == ""
    assert completed.stdout.strip() in {"0", "141"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "--stack"], "--stack needs a value"),
        (["plan", "dev"], "No idea what 'dev' is! Did you mean --stack dev?"),
        (["plan", "--job-minutes", "long"], "--job-minutes: 'long' is no length of time"),
        (["plan", "--json", ""], "--json is empty"),
        (["plan", "--against", ""], "--against is empty"),
        *(
            (["plan", f"--job-minutes={n}"], f"--job-minutes {n} is no length of a job")
            for n in ("0", "-5", "inf", "7201")
        ),
        *(
            (["plan", f"--jobs-per-month={n}"], f"--jobs-per-month '{n}' is no number of jobs")
            for n in ("-1", "nan", "inf", "x", "")
        ),
        (["catalog.instances", "--region", "mars-1"], "no prices of region 'mars-1' are known"),
        (["catalog.instances", "--region", ""], "no prices of region '' are known"),
        (["catalog.instances", "--gpus=-1"], "--gpus -1 is no amount"),
        (["catalog.instances", "--min-memory=nan"], "--min-memory nan is no amount"),
        (["catalog.instances", "--max-price=-3"], "--max-price -3 is no amount"),
        (["catalog.instances", "--gpu", "t5"], "unknown GPU 't5'; did you mean t4?"),
        (["catalog.instances", "--sort", "x"], "cannot sort by 'x'"),
        (["plan", "--comment", "c.md"], "--comment needs a plan to compare with"),
    ],
)
def test_a_contradictory_flag_is_bad_input_and_nothing_runs(
    words: list[str], message: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    assert cli.main(["inv", *words]) == 2
    gc.enable()  # `plan` switches it off for its own short process
    printed = capsys.readouterr()
    assert printed.err.splitlines()[0] == message
    assert printed.out == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ami.prune --keep", "a whole number, such as 2"),
        ("catalog.instances --max-price", "a number, such as 2 or 1.5"),
    ],
)
def test_what_is_no_number_says_which_would_be(words: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inv", *words.split(), "x"]) == 2
    assert f"{words.split()[1]}: 'x' is not a number\n    expected: {expected}" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_reported_in_words(root: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "paddock", "--list"]
        completed = subprocess.run(command, cwd=root, stdout=full, stderr=subprocess.PIPE, text=True)
    assert completed.returncode == 74
    assert completed.stderr == "cannot write the output: No space left on device\n"


@pytest.mark.parametrize(("columns", "width"), [("0", 120), ("-4", 120), ("wide", 120), ("9", 40), ("100", 100)])
def test_a_width_that_makes_no_sense_is_not_believed(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert console(io.StringIO()).width == width


def test_the_users_own_settings_of_invoke_are_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".invoke.yaml").write_text("[")  # it would not even parse
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cli.main(["inv", "--list"]) == 0
