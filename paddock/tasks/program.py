"""Invoke's parser before `paddock.tasks`: a command line becomes a task, and misuse a sentence."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

from invoke.config import Config
from invoke.exceptions import Exit, ParseError, UnexpectedExit
from invoke.program import Program

from paddock import __version__
from paddock.errors import printable
from paddock.tasks import namespace
from paddock.terminal import BadFlag


def run(argv: list[str]) -> int:
    """Run the tasks of the command line. Raises BadFlag for a wrong one, and what the tasks raise."""
    name = "paddock" if Path(argv[0]).stem == "paddock" else "inv"
    program = _Program(version=__version__, namespace=namespace, name=name, binary=name, config_class=_Settings)
    try:
        program.run(argv if len(argv) > 1 else [*argv, "--list"])
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


class _Program(Program):
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
            raise ParseError(_no_number(str(e), self.argv)) from None
        self.parse_cleanup()
        self.update_config()
        # Invoke joins the words after -- into one text, and words with spaces would fall apart.
        self.config.command_line = self.argv[self.argv.index("--") + 1 :] if "--" in self.argv else []
        self.execute()


def _misuse(e: ParseError, program: Program) -> str:
    """Explain what is wrong with the command line, without Invoke's names for its own objects."""
    bare = re.match(r"Flag <Argument: ([\w-]+).*> needed value", str(e))
    return f"--{bare[1]} needs a value" if bare else f"{e}{_suggestion(e, program)}"


def _no_number(message: str, argv: list[str]) -> str:
    value = (re.search(r": '(.*)'$", message) or ["", ""])[1]
    for flag, word in pairwise([*argv, ""]):
        if flag.startswith("--") and (word == value or flag.endswith(f"={value}")):
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
        return f" Did you mean '--stack {word}'?"
    candidates: list[str] = list(program.collection.task_names) if program.collection else []
    if word.startswith("-"):
        candidates = list(e.context.flags) if e.context else []
    from difflib import get_close_matches

    close = get_close_matches(word, candidates, n=1)
    return f" Did you mean '{close[0]}'?" if close else f" '{program.binary} --list' shows the tasks."
