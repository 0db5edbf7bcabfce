"""The program: words become a command that is performed, and an error becomes a sentence, here alone."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from paddock import __version__
from paddock.console import help
from paddock.console.command import perform
from paddock.console.completion import candidates
from paddock.console.contents import Contents
from paddock.console.output import PARSE_ONLY, BadFlag, write_any_text
from paddock.console.parser import parse
from paddock.errors import BUG, INTERRUPTED, PaddockError, missing_module, printable, program

# As in sysexits.h and the shell.
BAD_INPUT, IO_ERROR, BROKEN_PIPE = 2, 74, 141

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def run(contents: Contents, words: Sequence[str]) -> int:
    """Run a command line and return the exit code; print no traceback unless `PADDOCK_DEBUG` is set."""
    write_any_text()
    try:
        with _no_interrupt_lost():
            code = _run(contents, words)
        sys.stdout.flush()
    except OSError as e:
        if not _is_of_output(e):
            raise  # a defect, of which PADDOCK_DEBUG shows the traceback
        # The reader is gone or the disk is full; without this the interpreter would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(e, BrokenPipeError):
            return BROKEN_PIPE
        _say(f"cannot write the output: {e.strerror}")
        return IO_ERROR
    return code


def _is_of_output(e: Exception) -> bool:
    return isinstance(e, BrokenPipeError) or (isinstance(e, OSError) and e.errno in _UNWRITABLE)


@contextmanager
def _no_interrupt_lost() -> Iterator[None]:
    """Interrupt again where Ctrl-C came inside a finaliser or a callback, whose exceptions the interpreter drops."""
    before, again = sys.unraisablehook, list[threading.Timer]()

    def dropped(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        main = threading.main_thread().ident or 0
        # Later, when this callback has ended.
        again.append(threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)))
        again[-1].start()

    sys.unraisablehook = dropped
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in again:
            timer.cancel()


def _run(contents: Contents, words: Sequence[str]) -> int:
    try:
        if words[:1] == ["--complete"]:
            answer: str | None = "\n".join(candidates(contents, words[2:]))
        else:
            answer = _answer(contents, words[: words.index("--")] if "--" in words else words)
        if answer is None:
            return _perform(contents, words)
        sys.stdout.write(f"{answer}\n")
        return 0
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except Exception as e:
        if _is_of_output(e):
            raise
        return _report(e)


_VERSION, _HELP, _LIST = {"-V", "--version"}, {"-h", "--help"}, {"-l", "--list"}


def _answer(contents: Contents, words: Sequence[str]) -> str | None:
    """Return the version, help or list that the words ask for, wherever they do; None where a command is to run.

    Raises BadFlag.
    """
    words = [part for word in words for part in (word.split("=", 1) if word[:7] in ("--help=", "--list=") else [word])]
    names = [word for word in words if not word.startswith("-")]
    if _VERSION.intersection(words):
        return f"paddock {__version__}"
    if _LIST.intersection(words):
        return help.listing(contents, *names[:1])
    if _HELP.intersection(words):
        return help.about(contents, names[0]) if names else help.greeting(contents)
    if len(words) == 1 and contents.members(words[0]) and not contents.find(words[0]):
        return help.listing(contents, words[0])
    return None if words else help.greeting(contents)


def _perform(contents: Contents, words: Sequence[str]) -> int:
    """Parse and perform. Raises BadFlag, and what the command raises."""
    found = contents.find(words[0])
    if found is None:
        missing = f"there is no flag {words[0]} without a command"
        what = missing if words[0].startswith("-") else f"no command is called {words[0]!r}"
        raise BadFlag(f"{what}\n    fix: {contents.explain(words[0], words[1:2])}")
    entry, first = found
    command = entry.load()
    if not any(flag.positional for flag in command.parameters.flags()):
        for behind in words[1:2]:
            if hint := contents.dotted(words[0], behind):
                raise BadFlag(f"no command is called '{words[0]} {behind}'\n    fix: {hint}")
    parameters = parse(entry.name, command, [*first, *words[1:]])
    # `./inv` has the values read, too, before it fetches gigabytes: those commands end by themselves at `work_begins`.
    return perform(command, parameters) if command.checks_values_first or not os.environ.get(PARSE_ONLY) else 0


def _report(e: Exception) -> int:
    if isinstance(e, PaddockError):
        _say(str(e))
        return e.exit_code
    if os.environ.get("PADDOCK_DEBUG"):
        raise e
    if _needs_checkout(e):
        _say(
            f"this installation lacks a part of the project: {str(e).partition(' (')[0]}\n    expected: a checkout;"
            f" `{program()} --list` shows the commands that need none\n    fix: ./inv in a checkout"
        )
        return BAD_INPUT
    if isinstance(e, ModuleNotFoundError):
        _say(missing_module(e))
        return 1
    _say(f"{type(e).__name__}: {e}\nThis is a bug in paddock; PADDOCK_DEBUG=1 before the same command shows where.")
    return BUG


def _needs_checkout(e: Exception) -> bool:
    """Report whether a part of the project was imported that an installation on a node does not have."""
    ours = isinstance(e, ImportError) and str(e.name).partition(".")[0] in {"paddock", "infra", "policy"}
    return ours and (isinstance(e, ModuleNotFoundError) or find_spec("infra") is None)


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr)  # noqa: T201 (the program's own voice)
