"""Invoke's parser before `paddock.tasks`: a command line becomes a task, and misuse a sentence."""

from __future__ import annotations

import os
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path

from invoke.completion.complete import complete
from invoke.config import Config
from invoke.exceptions import Exit, ParseError, UnexpectedExit
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.parser.parser import Parser
from invoke.program import Program

from paddock import __version__, errors
from paddock.duration import NoDuration
from paddock.errors import printable
from paddock.tasks import help, namespace
from paddock.terminal import PARSE_ONLY, BadFlag

_VERSION, _HELP, _LIST = {"-V", "--version"}, {"-h", "--help"}, {"-l", "--list"}
_OF_INVOKE = {"complete", "help", "list", "version"}


def run(argv: list[str]) -> int:
    """Run the tasks of the command line. Raises BadFlag for a wrong one, and what the tasks raise."""
    answer = _answer(argv[1 : argv.index("--")] if "--" in argv else argv[1:])
    if answer is not None:
        sys.stdout.write(f"{answer}\n")
        return 0
    program = _Program(
        namespace=namespace, name="paddock", binary=errors.program(), config_class=_Settings,
        binary_names=["./inv", "inv", "paddock", errors.program()],
    )  # fmt: skip
    try:
        program.run(_name_optional(argv))
    except ParseError as e:
        raise BadFlag(_misuse(e, program)) from None
    except Exit as e:
        if e.message:
            sys.stderr.write(f"{printable(e.message)}\n")
        return int(e.code)
    except UnexpectedExit as e:
        if e.result.hide:
            sys.stderr.write(f"{printable(str(e))}\n")
        return int(e.result.exited)
    return 0


def _answer(words: list[str]) -> str | None:
    """Return the version, help or list that the words ask for, wherever they do; None where a task is to run.

    Not left to Invoke: behind a task that needs a value it takes `--help` for that value. Raises BadFlag.
    """
    words = [part for word in words for part in (word.split("=", 1) if word[:7] in ("--help=", "--list=") else [word])]
    names = [word for word in words if not word.startswith("-")]
    if "--complete" in words:
        return None
    if _VERSION.intersection(words):
        return f"paddock {__version__}"
    if _LIST.intersection(words):
        return help.listing(*names[:1])
    if _HELP.intersection(words):
        return help.about(names[0]) if names else help.greeting()
    if len(words) == 1 and help.is_bare_group(words[0]):
        return help.listing(words[0])
    return None if words else help.greeting()


class _Settings(Config):
    """Invoke's settings of the user, the machine and the shell are not Paddock's, and may be unreadable."""

    def load_base_conf_files(self) -> None:
        """Load none."""

    def load_shell_env(self) -> None:
        """Load none."""


def _name_optional(argv: list[str]) -> list[str]:
    """Write a flag before the value of a positional argument that may be left out: Invoke knows only needed ones.

    The word behind a task is its value unless it is a flag or a task itself.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    words: list[str] = []
    for number, word in enumerate(argv):
        before = argv[number - 1] if 0 < number < end else ""
        if before in namespace.task_names and not word.startswith("-") and word not in namespace.task_names:
            first = namespace[before].get_arguments()[:1]
            words += [
                f"--{argument.names[0]}" for argument in first if argument.positional and argument.default is not None
            ]
        words.append(word)
    return words


class _Program(Program):
    def core_args(self) -> list[Argument]:
        """Return Invoke's own flags without those that it would take, and that change nothing here, such as `--dry`."""
        return [argument for argument in super().core_args() if argument.names[0] in _OF_INVOKE]

    def _make_parser(self) -> Parser:
        """Return a parser of the tasks that the command line names: Invoke's copies every flag of every task."""
        words = set(re.split(r"[\s=]", " ".join(self.argv)))
        named = {name: second for name, second in self.collection.task_names.items() if words & {name, *second}}
        contexts = [
            ParserContext(name, second, self.collection[name].get_arguments()) for name, second in named.items()
        ]
        return Parser(contexts, self.initial_context)

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:
        """Take those of Invoke's steps that lead to a task, and let the exceptions out."""
        self.create_config()
        self.normalize_argv(argv)
        self.parse_core_args()
        self.parse_collection()
        try:
            self.parse_tasks()
        except ValueError as e:  # Invoke casts what a flag is given, and lets the cast's own words out
            raise ParseError(_bad_value(e, self.argv)) from None
        if self.args.complete.value:
            complete(
                names=self.binary_names, core=self.core, initial_context=self.initial_context,
                collection=self.collection, parser=self._make_parser(),
            )  # fmt: skip
        if os.environ.get(PARSE_ONLY):
            # Values too, of the tasks that read them all before they begin: those end themselves there.
            self.tasks[:] = [call for call in self.tasks if getattr(namespace[call.name], "checks_values_first", False)]
            if not self.tasks:
                return
        # Invoke joins the words after -- with spaces alone, and those that hold one would fall apart.
        self.config.command_line = self.argv[self.argv.index("--") + 1 :] if "--" in self.argv else []
        self.core.remainder = shlex.join(self.config.command_line)
        self.execute()


def _misuse(e: ParseError, program: Program) -> str:
    """Explain what is wrong with the command line, without Invoke's names for its own objects."""
    bare = re.match(r"Flag <Argument: ([\w-]+).*> needed value", str(e))
    if bare:
        return f"--{bare[1]} needs a value"
    if e.context and e.context.missing_positional_args:
        return _missing(e.context, program)
    if switch := next(filter(None, (_switch(word, e.context) for word in program.argv)), ""):
        return f"{switch} takes no value\n    expected: {switch} alone, or not at all"
    return f"{e}{_suggestion(e, program)}"


def _missing(task: ParserContext, program: Program) -> str:
    names = " and ".join(str(argument.name).upper() for argument in task.missing_positional_args)
    fix = "write --json last: the word behind it was taken for a file" if "--json" in program.argv else ""
    usage = help.task_help(str(task.name)).partition("\n")[0]
    return f"{task.name} needs {names}\n    expected: {usage}" + (f"\n    fix: {fix}" if fix else "")


def _switch(word: str, task: ParserContext | None) -> str:
    """Return the flag of a word such as `--fix=false`, where the task's flag is one that is given or left out."""
    flag, value, _ = word.partition("=")
    return flag if value and task and flag in task.flags and not task.flags[flag].takes_value else ""


def _bad_value(error: ValueError, argv: list[str]) -> str:
    """Name the flag whose value is no number, or no length of time."""
    message = str(error)
    value = error.value if isinstance(error, NoDuration) else (re.search(r": '(.*)'$", message) or ["", ""])[1]
    for flag, word in pairwise([*argv, ""]):
        if flag.startswith("--") and (word == value or flag.endswith(f"={value}")):
            if isinstance(error, NoDuration):
                return f"{flag.partition('=')[0]}: {message}"
            whole = (
                "a whole number, such as 2" if "invalid literal for int()" in message else "a number, such as 2 or 1.5"
            )
            return f"{flag.partition('=')[0]}: {value!r} is not a number\n    expected: {whole}"
    return message


def _suggestion(e: ParseError, program: Program) -> str:
    unknown = re.search(r"No idea what '(.+)' is", str(e))
    if not unknown:
        return ""
    word = unknown[1]
    if help.is_bare_group(word):
        return f" {help.explain_group(word, program.argv[program.argv.index(word) + 1 :][:1])}"
    if "gpu.run" in program.argv and "--" not in program.argv:
        return " The program to run stands after --: gpu.run --gpus 1 -- python train.py"
    if e.context and "--stack" in e.context.flags and Path(f"Pulumi.{word}.yaml").exists():
        return f" Did you mean --stack {word}?"
    if word.startswith("-"):
        near = errors.did_you_mean(word, e.context.flags if e.context else [])
        task = e.context.name if e.context and e.context.name else "TASK"
        return f" {near[:1].upper()}{near[1:]}" if near else f" `{errors.program()} {task} --help` shows the flags."
    return f" {help.explain_unknown(word)}"
