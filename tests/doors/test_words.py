"""Help, `--json`, wrong flags and wrong values of every command, through the program's own entry."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock import __version__
from paddock.console.parameters import Declaration
from paddock.tasks.program import contents, main
from tests.support.door import bootstrap
from tests.support.effects import effects

CONTENTS = contents()
NAMES = sorted(CONTENTS.entries)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("PADDOCK_PROGRAM", "./inv")
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    gc.enable()  # `plan` switches it off for its own short process


def flags(name: str) -> list[Declaration]:
    return CONTENTS.entries[name].load().parameters.flags()


def needed(name: str) -> list[str]:
    """Return words for what a command cannot do without."""
    return [f"x{number}" for number, flag in enumerate(flags(name)) if flag.needed]


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the message with which a command line is refused, and see that nothing else came of it."""
    with effects() as seen:
        code = main(["inv", *words])
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert seen == []
    assert "Traceback" not in err
    return err


def answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command line prints that starts no work."""
    with effects() as seen:
        assert (main(["inv", *words]), seen) == (0, []), words
    return capsys.readouterr().out


def test_help_is_help_wherever_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        lines = ([name, "--help"], ["--help", name], [name, "-h"], ["-h", name], [name, *needed(name), "--help"])
        (text,) = {answer(words, capsys) for words in lines}
        assert text.startswith(f"./inv {name}")


def test_a_wrong_flag_is_refused_with_where_the_right_ones_are(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        message = refusal([name, *needed(name), "--zzzzz"], capsys)
        assert message.startswith(f"{name} has no flag --zzzzz\n    expected: ./inv {name}")
        assert message.endswith(f"    fix: `./inv {name} --help` shows the flags\n")


def test_json_into_no_folder_is_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "absent" / "x.json"
    for name in (name for name in NAMES if CONTENTS.entries[name].load().reports):
        message = refusal([name, *needed(name), "--json", str(file)], capsys)
        assert message.startswith(f"cannot write {file}: there is no folder {file.parent}\n    fix: "), (name, message)


def test_a_value_of_another_kind_is_refused_by_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        for flag in (flag for flag in flags(name) if flag.metavar in ("N", "NUMBER", "TIME")):
            for value in ("x", "nan"):
                message = refusal([name, *needed(name), flag.option, value], capsys)
                assert message.startswith(flag.option), (name, message)
                assert "\n    expected: " in message, (name, message)


def test_a_word_that_is_not_a_choice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = [
        (name, flag) for name in NAMES for flag in flags(name) if flag.chooses and flag.metavar and not flag.positional
    ]
    assert ("slurm.start", "role") in {(name, flag.name) for name, flag in chosen}
    for name, flag in chosen:
        message = refusal([name, *needed(name), flag.option, "boss"], capsys)
        assert message.startswith(f'{flag.option} is "boss"\n    expected: '), (name, message)


def test_a_switch_takes_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        for flag in (flag.option for flag in flags(name) if flag.kind == "bool"):
            message = refusal([name, *needed(name), f"{flag}=false"], capsys)
            assert message == f"{flag} takes no value\n    expected: {flag} alone, or not at all\n", name


def test_every_flag_has_help_and_shows_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        printed = " ".join(answer([name, "--help"], capsys).split())
        for flag in flags(name):
            shown = flag.flag.name.upper() if flag.positional else flag.option
            assert flag.trailing or shown in printed, (name, flag.name)
            assert flag.about(), f"{name} --{flag.flag.name} has no help"
            if isinstance(flag.default, str | int | float) and flag.default and flag.const is ...:
                assert "by default" in flag.about() or "(default: " in flag.about(), (name, flag.name)


def test_a_group_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for group in sorted({name.partition(".")[0] for name in NAMES if "." in name}):
        alone = [] if CONTENTS.find(group) else [[group]]
        for words in ([group, "--help"], ["--help", group], ["--list", group], [group, "--list"], *alone):
            printed = answer(words, capsys)
            assert [name for name in NAMES if name.startswith(f"{group}.") and f"  {name} " not in printed] == []


def test_a_word_that_is_command_and_group_answers_as_both(capsys: pytest.CaptureFixture[str]) -> None:
    printed = answer(["bench", "--help"], capsys)
    assert printed.startswith("./inv bench [flags]\n")
    assert "\n  bench.compare  " in printed


def test_the_list_fits_into_seventy_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(answer(["--list"], capsys).splitlines()) <= 70


def test_a_group_is_listed_before_its_packages_are_fetched(root: Path) -> None:
    inv = bootstrap(root)
    groups = {name.partition(".")[0] for name in NAMES if "." in name} - set(NAMES)
    assert {name: inv.needed_sets([name]) for name in groups} == {name: ["base"] for name in groups}
    assert inv.needed_sets(["test", "--", "--version"]) == ["dev"], "pytest's own"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gpu list", "no command is called 'gpu'\n    fix: did you mean gpu.list?"),
        ("lab zzzzz", "no command is called 'lab'\n    fix: it is a group: lab.up, lab.demo, lab.status, lab.down"),
        ("lab --json", "no command is called 'lab'\n    fix: it is a group: lab.up, lab.demo, lab.status, lab.down"),
        ("bench.run", "no command is called 'bench.run'\n    fix: it is now bench"),
        ("slurm nodes", "no command is called 'slurm'\n    fix: it is now slurm.status --nodes"),
        ("init github", "no command is called 'init github'\n    fix: did you mean init.github?"),
        ("bench run", "no command is called 'bench run'\n    fix: it is now bench"),
        ("--list nope", "no command or group is called 'nope'\n    fix: `./inv --list` shows the commands"),
        ("--help plna", "no command or group is called 'plna'\n    fix: did you mean plan?"),
        ("--dryy plan", "there is no flag --dryy without a command\n    fix: `./inv --list` shows the commands"),
        (
            "catalog.refresh --dry",
            "catalog.refresh has no flag --dry\n    expected: ./inv catalog.refresh [flags]"
            "\n    fix: did you mean --dry-run?",
        ),
    ],
)
def test_a_word_in_the_place_of_a_command_gets_the_nearest(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(words.split(), capsys) == f"{message}\n"


def test_the_version_is_printed_wherever_its_flag_stands(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("--version", "-V", "plan --version", "plan -V", "gpu.list --version"):
        assert answer(words.split(), capsys) == f"paddock {__version__}\n"


def test_an_empty_word_is_not_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal([""], capsys).startswith("no command is called ''")


def test_a_second_name_is_listed_as_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\n  images.build  " in answer(["--list", "build-runner"], capsys)
