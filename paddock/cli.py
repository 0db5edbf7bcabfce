"""The console program: Invoke's parser before `paddock.tasks`, and the one place where an error becomes a sentence."""

from __future__ import annotations

import errno
import os
import re
import sys
from itertools import pairwise
from pathlib import Path

from invoke.config import Config
from invoke.exceptions import Exit, ParseError, UnexpectedExit
from invoke.program import Program

from paddock import __version__
from paddock.errors import PaddockError
from paddock.tasks import namespace

# As in sysexits.h and the shell.
BAD_INPUT, INTERNAL_ERROR, IO_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 70, 74, 130, 141

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def main(argv: list[str] | None = None) -> int:
    """Run the tasks on the command line and return the exit code; print no traceback unless `PADDOCK_DEBUG` is set."""
    argv = list(sys.argv if argv is None else argv)
    program = _program("paddock" if Path(argv[0]).stem == "paddock" else "inv")
    try:
        code = _run(program, argv if len(argv) > 1 else [*argv, "--list"])
        sys.stdout.flush()
    except OSError as e:
        # The reader has gone or the disk is full; without this the interpreter would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(e, BrokenPipeError):
            return BROKEN_PIPE
        _say(f"cannot write the output: {e.strerror}")
        return IO_ERROR
    return code


def _run(program: Program, argv: list[str]) -> int:
    try:
        program.run(argv)
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except ParseError as e:
        _say(_misuse(e, program))
        return BAD_INPUT
    except Exit as e:
        if e.message:
            _say(e.message)
        return e.code
    except UnexpectedExit as e:
        if e.result.hide:
            _say(str(e))
        return e.result.exited
    except Exception as e:
        if isinstance(e, BrokenPipeError) or (isinstance(e, OSError) and e.errno in _UNWRITABLE):
            raise
        return _report(e)
    return 0


class _Settings(Config):
    def load_base_conf_files(self) -> None:
        """Invoke's settings of the user and the machine are not Paddock's, and may be unreadable."""


class _Program(Program):
    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:
        """Take Invoke's own steps, but let the exceptions out: `main` says what the user reads."""
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


def _program(name: str) -> _Program:
    return _Program(version=__version__, namespace=namespace, name=name, binary=name, config_class=_Settings)


def _report(e: Exception) -> int:
    if isinstance(e, PaddockError):
        _say(str(e))
        return e.exit_code
    if os.environ.get("PADDOCK_DEBUG"):
        raise e
    if isinstance(e, ModuleNotFoundError) and str(e.name).partition(".")[0] in {"paddock", "infra", "policy"}:
        _say(
            f"this installation has no {e.name}\n    expected: a checkout of the project; without one there are"
            " gpu.* and catalog.*\n    fix: ./inv in a checkout"
        )
        return BAD_INPUT
    _say(f"{type(e).__name__}: {e}\nThis is a bug in paddock; PADDOCK_DEBUG=1 before the same command shows where.")
    return INTERNAL_ERROR


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


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 (the program's own voice)
