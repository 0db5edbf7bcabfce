"""Invoke's parser before `paddock.tasks`: a command line becomes a task, and misuse a sentence."""

from __future__ import annotations

import os
import re
import sys
from itertools import pairwise
from pathlib import Path

from invoke.config import Config
from invoke.exceptions import Exit, ParseError, UnexpectedExit
from invoke.parser.context import ParserContext
from invoke.program import Program

from paddock import __version__, errors
from paddock.duration import NoDuration
from paddock.errors import printable
from paddock.tasks import help, namespace
from paddock.terminal import PARSE_ONLY, BadFlag


def run(argv: list[str]) -> int:
    """Run the tasks of the command line. Raises BadFlag for a wrong one, and what the tasks raise."""
    program = _Program(
        version=__version__, namespace=namespace, name="paddock", binary=errors.program(), config_class=_Settings,
        binary_names=["./inv", "inv", "paddock", errors.program()],
    )  # fmt: skip
    try:
        program.run(_name_optional(_help_first(argv)))
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


class _Settings(Config):
    def load_base_conf_files(self) -> None:
        """Invoke's settings of the user and the machine are not Paddock's, and may be unreadable."""


def _help_first(argv: list[str]) -> list[str]:
    """Put a request for help before the tasks: behind one that needs a value, Invoke takes `--help` for that value."""
    end = argv.index("--") if "--" in argv else len(argv)
    words = argv[1:end]
    if not {"-h", "--help"}.intersection(words):
        return argv
    names = [word for word in words if not word.startswith("-")]
    if names and names[0] in namespace.collections and namespace.collections[names[0]].default is None:
        return [argv[0], "--list", names[0]]
    return [argv[0], "--help", *names[:1]]


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
    def print_help(self) -> None:
        sys.stdout.write(f"{help.greeting()}\n")

    def print_task_help(self, name: str) -> None:
        sys.stdout.write(f"{help.task_help(name)}\n")

    def list_flat(self) -> None:
        sys.stdout.write(f"{help.listing(self.list_root or '')}\n")

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:
        """Take Invoke's own steps, but let the exceptions out."""
        self.create_config()
        keep = sys.dont_write_bytecode
        self.parse_core(argv)
        # Invoke switches the cache of compiled modules off; without it every plan compiles Pulumi's SDKs again.
        sys.dont_write_bytecode = keep
        self.parse_collection()
        try:
            self.parse_tasks()
        except ValueError as e:  # Invoke casts what a flag is given, and lets the cast's own words out
            raise ParseError(_bad_value(e, self.argv)) from None
        self.parse_cleanup()
        if os.environ.get(PARSE_ONLY):
            # Values too, of the tasks that read them all before they begin: those end themselves there.
            self.tasks[:] = [call for call in self.tasks if getattr(namespace[call.name], "checks_values_first", False)]
            if not self.tasks:
                return
        self.update_config()
        # Invoke joins the words after -- into one text, and words with spaces would fall apart.
        self.config.command_line = self.argv[self.argv.index("--") + 1 :] if "--" in self.argv else []
        self.execute()


def _misuse(e: ParseError, program: Program) -> str:
    """Explain what is wrong with the command line, without Invoke's names for its own objects."""
    bare = re.match(r"Flag <Argument: ([\w-]+).*> needed value", str(e))
    if bare:
        return f"--{bare[1]} needs a value"
    if e.context and e.context.missing_positional_args:
        return _missing(e.context, program)
    return f"{e}{_suggestion(e, program)}"


def _missing(task: ParserContext, program: Program) -> str:
    names = " and ".join(str(argument.name).upper() for argument in task.missing_positional_args)
    fix = "write --json last: the word behind it was taken for a file" if "--json" in program.argv else ""
    usage = help.task_help(str(task.name)).partition("\n")[0]
    return f"{task.name} needs {names}\n    expected: {usage}" + (f"\n    fix: {fix}" if fix else "")


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
    if "gpu.run" in program.argv and "--" not in program.argv:
        return " The program to run stands after --: gpu.run --gpus 1 -- python train.py"
    if e.context and "--stack" in e.context.flags and Path(f"Pulumi.{word}.yaml").exists():
        return f" Did you mean --stack {word}?"
    if word.startswith("-"):
        near = errors.did_you_mean(word, e.context.flags if e.context else [])
        task = e.context.name if e.context and e.context.name else "TASK"
        return f" {near[:1].upper()}{near[1:]}" if near else f" `{errors.program()} {task} --help` shows the flags."
    return f" {help.explain_unknown(word)}"
