"""Help, `--json`, wrong flags and wrong values of every task, through the program's own entry."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoke.parser.argument import Argument

from paddock import __version__, cli
from paddock.gpu.actions.registry import ACTIONS
from paddock.gpu.cli import commands
from paddock.gpu.cli.commands import flags
from paddock.tasks import help, namespace, program
from tests.support.door import bootstrap
from tests.support.effects import effects

TASKS = sorted(help.tasks())
OF_INVOKE = (
    "--dry", "-R", "--echo", "-e", "--pty", "-p", "--warn-only", "-w", "--debug", "-d", "--write-pyc", "--hide=both",
    "--config=x.yaml", "-f", "--command-timeout=5", "-T", "--prompt-for-sudo-password", "--collection=x", "-c",
    "--search-root=.", "-r", "--no-dedupe", "--list-depth=1", "-D", "--list-format=json", "-F",
    "--print-completion-script=bash",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("PADDOCK_PROGRAM", "./inv")
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    gc.enable()  # `plan` switches it off for its own short process


def arguments(name: str) -> list[Argument]:
    return list(namespace[name].get_arguments())


def needed(name: str) -> list[str]:
    """Return words for what a task cannot do without."""
    return [f"x{number}" for number, item in enumerate(arguments(name)) if item.positional and item.default is None]


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the message with which a command line is refused, and see that nothing else came of it."""
    with effects() as seen:
        code = cli.main(["inv", *words])
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert seen == []
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("name", TASKS)
def test_help_is_help_wherever_it_stands(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = set()
    for words in ([name, "--help"], ["--help", name], [name, "-h"], ["-h", name], [name, *needed(name), "--help"]):
        with effects() as seen:
            assert cli.main(["inv", *words]) == 0
        assert seen == []
        printed.add(capsys.readouterr().out)
    (text,) = printed
    assert text.startswith(f"./inv {name}")


@pytest.mark.parametrize("name", TASKS)
def test_a_wrong_flag_is_refused_with_where_the_right_ones_are(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = refusal([name, *needed(name), "--zzzzz", "--"], capsys)
    assert message == f"No idea what '--zzzzz' is! `./inv {name} --help` shows the flags.\n"


@pytest.mark.parametrize("name", [name for name in TASKS if any(a.names[0] == "json" for a in arguments(name))])
def test_json_into_no_folder_is_refused_before_the_work(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "absent" / "x.json"
    message = refusal([name, *needed(name), "--json", str(file)], capsys)
    assert message.startswith(f"cannot write {file}: there is no folder {file.parent}\n    fix: "), message


def _wrong_values() -> Iterator[tuple[str, str, str]]:
    """Yield task, flag and a value that is none of its kind."""
    for name in TASKS:
        declared = getattr(namespace[name], "flags", {})
        for argument in arguments(name):
            flag = argument.names[0]
            kind = declared[flag].metavar if flag in declared else ""
            is_number = issubclass(argument.kind, int | float) and argument.kind is not bool
            if is_number or kind in ("N", "NUMBER", "TIME"):
                yield name, flag, "x"
            if issubclass(argument.kind, float) or kind in ("NUMBER", "TIME"):
                yield name, flag, "nan"


@pytest.mark.parametrize(("name", "flag", "value"), _wrong_values())
def test_a_value_of_another_kind_is_refused_by_its_flag(
    name: str, flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal([name, *needed(name), f"--{flag}", value], capsys)
    assert message.startswith(f"--{flag}"), message
    assert "\n    expected: " in message


@pytest.mark.parametrize("name", TASKS)
def test_a_switch_takes_no_value(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for flag in (argument.names[0] for argument in arguments(name) if argument.kind is bool):
        message = refusal([name, *needed(name), f"--{flag}=false"], capsys)
        assert message == f"--{flag} takes no value\n    expected: --{flag} alone, or not at all\n"


@pytest.mark.parametrize("flag", OF_INVOKE)
def test_a_flag_of_invoke_is_refused_where_it_would_do_nothing(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["gpu.list", flag], [flag, "plan"]):
        assert refusal(words, capsys).startswith(f"No idea what '{flag.partition('=')[0]}' is!")


def test_a_dry_run_is_called_by_the_tasks_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(["catalog.refresh", "--dry"], capsys) == "No idea what '--dry' is! Did you mean --dry-run?\n"


GROUPS = sorted(name for name in namespace.collections if help.is_bare_group(name))


@pytest.mark.parametrize("name", sorted(namespace.collections))
def test_a_group_lists_its_tasks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    members = [task for task in TASKS if task.startswith(f"{name}.")]
    for words in ([name, "--help"], ["--help", name], ["--list", name], [name, "--list"], [name]):
        if words == [name] and name not in GROUPS:
            continue
        with effects() as seen:
            assert cli.main(["inv", *words]) == 0
        assert seen == []
        printed = capsys.readouterr().out
        assert [task for task in members if f"  {task} " not in printed] == []


@pytest.mark.parametrize(("name", "task"), [("bench", "bench.run"), ("docs", "docs.build")])
def test_a_word_that_is_task_and_group_answers_as_both(
    name: str, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inv", name, "--help"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"./inv {name} [flags]\n")
    assert f"The same task: {task}." in printed
    assert cli.main(["inv", "--list"]) == 0
    assert f" Also: {name}." in " ".join(capsys.readouterr().out.split())
    assert refusal([name, "--zzzzz"], capsys) == f"No idea what '--zzzzz' is! `./inv {task} --help` shows the flags.\n"


def test_a_group_is_listed_before_its_packages_are_fetched(root: Path) -> None:
    inv = bootstrap(root)
    assert set(inv.GROUPS) == {name for name in GROUPS if inv.needed_sets([f"{name}.x"]) != ["base"]}
    assert {name: inv.needed_sets([name]) for name in GROUPS} == {name: ["base"] for name in GROUPS}
    assert inv.needed_sets(["test", "--", "--version"]) == ["dev"], "pytest's own"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gpu list", "No idea what 'gpu' is! Did you mean gpu.list?"),
        ("lab zzzzz", "No idea what 'lab' is! It is a group: lab.demo, lab.down, lab.status, lab.up."),
        ("--list nope", "No idea what 'nope' is! `./inv --list` shows the tasks."),
        ("--help plna", "No idea what 'plna' is! Did you mean plan?"),
    ],
)
def test_a_word_in_the_place_of_a_task_gets_the_nearest(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(words.split(), capsys) == f"{message}\n"


@pytest.mark.parametrize("words", ["--version", "-V", "plan --version", "plan -V", "gpu.list --version"])
def test_the_version_is_printed_wherever_its_flag_stands(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with effects() as seen:
        assert cli.main(["inv", *words.split()]) == 0
    assert (capsys.readouterr().out, seen) == (f"paddock {__version__}\n", [])


def test_settings_of_invoke_in_the_shell_are_not_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INVOKE_COMMAND_LINE", "x")
    monkeypatch.setenv("INVOKE_RUNTIME_CONFIG", "/absent.yaml")
    assert cli.main(["inv", "catalog.instances", "--gpu", "t4"]) == 0
    assert "g4dn.xlarge" in capsys.readouterr().out


ACTION_TASKS = [f"gpu.{name}" for name in ACTIONS]
VALUES = {"N": "3", "NUMBER": "0.5", "TIME": "20m"}


def _lines(name: str) -> Iterator[list[str]]:
    """Yield command lines of an action: none of its flags, each alone in both forms, and all."""
    declared = flags(ACTIONS[name.removeprefix("gpu.")])
    positional = [f"x{number}" for number, flag in enumerate(declared.values()) if flag.default is ...]
    given = []
    for flag in declared.values():
        if flag.default is ...:
            continue
        value = [] if isinstance(flag.default, bool) else [VALUES.get(flag.metavar, "some")]
        given.append([f"--{flag.name}", *value])
    yield [name, *positional]
    for words in given:
        yield [name, *positional, *words]
        yield [name, "=".join(words), *positional]
    yield [name, *positional, *(word for words in given for word in words), "--", "true", "--gpus", "two words"]


@pytest.mark.parametrize("name", ACTION_TASKS)
def test_the_parser_of_a_node_reads_what_invoke_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    performed: list[tuple[object, ...]] = []
    monkeypatch.setattr(commands, "perform", lambda action, values, command=(): performed.append(
        (action.name, dict(values), list(command))) or 0)  # fmt: skip
    for words in _lines(name):
        assert commands.run(words) == 0, words
        assert program.run(["paddock", *words]) == 0, words
        first, second = performed[-2:]
        assert first == second, words


@pytest.mark.parametrize("name", ACTION_TASKS)
def test_the_parser_of_a_node_leaves_help_and_mistakes_to_invoke(name: str) -> None:
    words = [name, *needed(name)]
    mistakes = [["--help"], ["-h"], ["--zzzzz"], ["--json"], ["--json", "a", "--json", "b"], ["--dry"], ["surplus"]]
    for argument in arguments(name):
        if argument.kind is bool:
            mistakes.append([f"--{argument.names[0]}=false"])
        elif not argument.positional:
            mistakes.append([f"--{argument.names[0]}"])
        if issubclass(argument.kind, int | float) and argument.kind is not bool:
            mistakes.append([f"--{argument.names[0]}", "x"])
    for mistake in mistakes:
        assert commands.run([*words, *mistake]) is None, mistake
