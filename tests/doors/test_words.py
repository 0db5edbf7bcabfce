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


def answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command line prints that starts no work."""
    with effects() as seen:
        assert (cli.main(["inv", *words]), seen) == (0, []), words
    return capsys.readouterr().out


def test_help_is_help_wherever_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    for name in TASKS:
        lines = ([name, "--help"], ["--help", name], [name, "-h"], ["-h", name], [name, *needed(name), "--help"])
        (text,) = {answer(words, capsys) for words in lines}
        assert text.startswith(f"./inv {name}")


def test_a_wrong_flag_is_refused_with_where_the_right_ones_are(capsys: pytest.CaptureFixture[str]) -> None:
    for name in TASKS:
        message = refusal([name, *needed(name), "--zzzzz", "--"], capsys)
        assert message == f"No idea what '--zzzzz' is! `./inv {name} --help` shows the flags.\n"


def test_json_into_no_folder_is_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "absent" / "x.json"
    for name in (name for name in TASKS if any(argument.names[0] == "json" for argument in arguments(name))):
        message = refusal([name, *needed(name), "--json", str(file)], capsys)
        assert message.startswith(f"cannot write {file}: there is no folder {file.parent}\n    fix: "), (name, message)


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


def test_a_value_of_another_kind_is_refused_by_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for name, flag, value in _wrong_values():
        message = refusal([name, *needed(name), f"--{flag}", value], capsys)
        assert message.startswith(f"--{flag}"), (name, message)
        assert "\n    expected: " in message, (name, message)


def test_a_switch_takes_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    for name in TASKS:
        for flag in (argument.names[0] for argument in arguments(name) if argument.kind is bool):
            message = refusal([name, *needed(name), f"--{flag}=false"], capsys)
            assert message == f"--{flag} takes no value\n    expected: --{flag} alone, or not at all\n", name


def test_a_flag_of_invoke_is_refused_where_it_would_do_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in OF_INVOKE:
        for words in (["gpu.list", flag], [flag, "plan"]):
            assert refusal(words, capsys).startswith(f"No idea what '{flag.partition('=')[0]}' is!")


def test_a_dry_run_is_called_by_the_tasks_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(["catalog.refresh", "--dry"], capsys) == "No idea what '--dry' is! Did you mean --dry-run?\n"


GROUPS = sorted(name for name in namespace.collections if help.is_bare_group(name))


def test_a_group_lists_its_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    for name in namespace.collections:
        alone = [[name]] if name in GROUPS else []
        for words in ([name, "--help"], ["--help", name], ["--list", name], [name, "--list"], *alone):
            printed = answer(words, capsys)
            assert [task for task in TASKS if task.startswith(f"{name}.") and f"  {task} " not in printed] == []


@pytest.mark.parametrize(("name", "task"), [("bench", "bench.run"), ("docs", "docs.build")])
def test_a_word_that_is_task_and_group_answers_as_both(
    name: str, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = answer([name, "--help"], capsys)
    assert printed.startswith(f"./inv {name} [flags]\n")
    assert f"The same task: {task}." in printed
    assert f" Also: {name}." in " ".join(answer(["--list"], capsys).split())
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


def test_the_version_is_printed_wherever_its_flag_stands(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("--version", "-V", "plan --version", "plan -V", "gpu.list --version"):
        assert answer(words.split(), capsys) == f"paddock {__version__}\n"


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


def test_the_parser_of_a_node_reads_what_invoke_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    performed: list[tuple[object, ...]] = []
    monkeypatch.setattr(commands, "perform", lambda action, values, command=(): performed.append(
        (action.name, dict(values), list(command))) or 0)  # fmt: skip
    for words in (words for name in ACTION_TASKS for words in _lines(name)):
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
