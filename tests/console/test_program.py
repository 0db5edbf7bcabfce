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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddock.console.command import Entry, command
from paddock.console.contents import Contents
from paddock.console.output import console
from paddock.console.parameters import NoParameters
from paddock.console.program import run
from paddock.errors import PaddockError
from paddock.tasks import reference
from paddock.tasks.program import main

HOSTILE = "a\x1b[2J\x00\u202eb\x9b31m"
CONTENTS = Contents([Entry("act", f"{__name__}:act", "Act.", "Acts")])
ACTS: list[Callable[[], None]] = []
"""What the command does."""


@command()
def act(parameters: NoParameters) -> int:
    ACTS[-1]()
    return 0


@pytest.fixture(autouse=True)
def _acts() -> Iterator[None]:
    yield
    ACTS.clear()


def _raises(error: BaseException) -> None:
    def fail() -> None:
        raise error

    ACTS.append(fail)


class UserMistake(PaddockError):
    exit_code = 2


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserMistake("Pulumi.dev.yaml:3: no such key"), 2, "Pulumi.dev.yaml:3: no such key\n"),
        (UserMistake(f"{HOSTILE} is not a stack"), 2, "a\\x1b[2J\\x00\\u202eb\\x9b31m is not a stack\n"),
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
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _raises(error)
    assert run(CONTENTS, ["act"]) == code
    assert capsys.readouterr().err.startswith(message)


def test_an_interrupt_that_a_finaliser_swallows_comes_anew(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def sleep() -> None:
        Interrupted()
        time.sleep(60)

    ACTS.append(sleep)
    hook = sys.unraisablehook
    assert run(CONTENTS, ["act"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert sys.unraisablehook is hook


def test_debugging_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    _raises(ZeroDivisionError())
    monkeypatch.setenv("PADDOCK_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(CONTENTS, ["act"])


def test_debugging_takes_no_defect_for_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    _raises(FileNotFoundError(2, "No such file or directory"))
    monkeypatch.setenv("PADDOCK_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        run(CONTENTS, ["act"])


def test_an_error_is_written_as_the_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    _raises(UserMistake("no such key"))
    assert run(CONTENTS, ["act", "--json"]) == 2
    printed = capsys.readouterr()
    assert (json.loads(printed.out), printed.err) == ({"error": "no such key"}, "no such key\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tset"], "no command is called 'tset'\n    fix: did you mean test?"),
        (["zzzzz"], "no command is called 'zzzzz'\n    fix: `./inv --list` shows the commands"),
        (
            ["lint", "--fxi"],
            "lint has no flag --fxi\n    expected: ./inv lint [flags]\n    fix: did you mean --fix?",
        ),
        (
            ["bench.compare", "--json", "old.json", "new.json"],
            "bench.compare needs NEW\n    expected: ./inv bench.compare OLD NEW [flags]"
            "\n    fix: write --json last: the word behind it was taken for a file",
        ),
        (
            ["gpu.run", "python", "x.py"],
            "gpu.run does not take 'python'\n    expected: ./inv gpu.run [flags] -- COMMAND"
            "\n    fix: the program to run comes after --: gpu.run -- python",
        ),
    ],
)
def test_a_typo_is_bad_input_and_gets_a_suggestion(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_PROGRAM", "./inv")
    assert main(["inv", *words]) == 2
    assert capsys.readouterr().err.strip() == message


def test_the_words_after_the_dashes_are_those_of_the_argument(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inv", "gpu.run", "--", "no such program", "x"]) == 2
    assert "there is no program 'no such program'" in capfd.readouterr().err


def test_the_greeting_names_five_things_with_their_first_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_PROGRAM", "./inv")
    assert main(["inv"]) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^([A-Z][\w ]+): .*\n  (\./inv [\w.]+(?: MODEL)?)  ", printed, re.M) == [
        ("Fleet", "./inv plan"),
        ("Lab", "./inv lab.up"),
        ("GPUs", "./inv gpu.list"),
        ("Serve and bench", "./inv serve.plan MODEL"),
        ("Slurm", "./inv slurm.configure"),
    ]
    assert re.findall(r"^  (\./inv (?:--list|COMMAND --help))  ", printed, re.M) == [
        *("./inv --list", "./inv COMMAND --help")
    ]


@pytest.mark.parametrize("words", [[], ["--list"]], ids=["alone", "list"])
def test_help_fits_a_terminal_of_eighty_columns(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["inv", *words]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_page_of_all_tasks_is_current(root: Path) -> None:
    assert (root / reference.PATH).read_text(encoding="utf-8") == reference.page(), "run: ./inv docs.generate"


def test_json_is_printed_alone_and_written_beside_the_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    for words in (["catalog", "--gpu", "t4"], ["gpu.list"], ["smoke", "--tier", "1"]):
        main(["inv", *words, "--json"])
        printed = json.loads(capsys.readouterr().out)
        main(["inv", *words, "--json", "out.json"])
        text, written = capsys.readouterr().out, json.loads((tmp_path / "out.json").read_text())
        assert text
        assert not text.startswith("{")
        assert written.keys() == printed.keys()


def test_listing_the_tasks_loads_no_library_of_a_task(root: Path) -> None:
    heavy = {"pulumi", "pulumi_aws", "boto3", "torch", "numpy", "ray", "pydantic", "rich", "invoke", "yaml"}
    program = (
        "import sys; from paddock.tasks.program import main; main(['inv', '--list']);"
        " print(*sys.modules, file=sys.stderr)"
    )
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
        (["plan", "dev"], "plan does not take 'dev'"),
        (["plan", "--job-minutes", "long"], "--job-minutes: 'long' is not a duration"),
        (["plan", "--json", ""], "--json is empty"),
        (["plan", "--against", ""], "--against is empty"),
        *((["plan", f"--job-minutes={n}"], f"--job-minutes is {n}") for n in ("0", "-5", "inf", "7201")),
        *((["plan", f"--jobs-per-month={n}"], f"--jobs-per-month is {n}") for n in ("-1", "nan", "inf")),
        *((["plan", f"--jobs-per-month={n}"], f"--jobs-per-month: '{n}' is not a number") for n in ("x", "")),
        (["catalog", "--region", "mars-1"], "no prices of region 'mars-1' are known"),
        (["catalog", "--region", ""], "no prices of region '' are known"),
        (["catalog", "--gpus=-1"], "--gpus is -1"),
        (["catalog", "--min-memory=nan"], "--min-memory is nan"),
        (["catalog", "--max-price=-3"], "--max-price is -3"),
        (["catalog", "--gpu", "t5"], "unknown GPU 't5'; did you mean t4?"),
        (["catalog", "--sort", "x"], '--sort is "x"'),
        (["plan", "--comment", "c.md"], "--comment needs a plan to compare with"),
    ],
)
def test_a_contradictory_flag_is_bad_input_and_nothing_runs(
    words: list[str], message: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    assert main(["inv", *words]) == 2
    gc.enable()  # `plan` switches it off for its own short process
    printed = capsys.readouterr()
    assert printed.err.splitlines()[0] == message
    assert printed.out == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ami.prune --keep", "a whole number, such as 2"),
        ("catalog --max-price", "a number, such as 2 or 1.5"),
    ],
)
def test_what_is_no_number_says_which_would_be(words: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inv", *words.split(), "x"]) == 2
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
