"""The console program, and the one place where an error becomes a sentence.

Actions on GPUs run without Invoke, whose import costs a node more CPU time than the action.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from paddock.errors import PaddockError, missing_module, printable, program
from paddock.gpu.cli import commands
from paddock.terminal import PARSE_ONLY, complete_json_flag, write_any_text

# As in sysexits.h and the shell.
BAD_INPUT, INTERNAL_ERROR, IO_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 70, 74, 130, 141

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def main(argv: list[str] | None = None) -> int:
    """Run the tasks on the command line and return the exit code; print no traceback unless `PADDOCK_DEBUG` is set."""
    argv = list(sys.argv if argv is None else argv)
    if os.path.basename(argv[0]).partition(".")[0] == "paddock":
        os.environ["PADDOCK_PROGRAM"] = "paddock"
    write_any_text()
    try:
        with _no_interrupt_lost():
            code = _run(argv)
        sys.stdout.flush()
    except OSError as e:
        # The reader has gone or the disk is full; without this the interpreter would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(e, BrokenPipeError):
            return BROKEN_PIPE
        _say(f"cannot write the output: {e.strerror}")
        return IO_ERROR
    return code


@contextmanager
def _no_interrupt_lost() -> Iterator[None]:
    """Interrupt anew where Ctrl-C came inside a finaliser or a callback, whose exceptions the interpreter drops."""
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


def _run(argv: list[str]) -> int:
    try:
        argv = [argv[0], *commands.expand(complete_json_flag(argv[1:]))]
        code = None if os.environ.get(PARSE_ONLY) else commands.run(argv[1:])
        if code is None:
            from paddock.tasks import program

            code = program.run(argv)
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except Exception as e:
        if isinstance(e, BrokenPipeError) or (isinstance(e, OSError) and e.errno in _UNWRITABLE):
            raise
        return _report(e)
    return code


def _report(e: Exception) -> int:
    if isinstance(e, PaddockError):
        _say(str(e))
        return e.exit_code
    if os.environ.get("PADDOCK_DEBUG"):
        raise e
    if _needs_checkout(e):
        _say(
            f"this installation lacks a part of the project: {str(e).partition(' (')[0]}\n    expected: a checkout;"
            f" `{program()} --list` shows the tasks that need none\n    fix: ./inv in a checkout"
        )
        return BAD_INPUT
    if isinstance(e, ModuleNotFoundError):
        _say(missing_module(e))
        return 1
    _say(f"{type(e).__name__}: {e}\nThis is a bug in paddock; PADDOCK_DEBUG=1 before the same command shows where.")
    return INTERNAL_ERROR


def _needs_checkout(e: Exception) -> bool:
    """Report whether a part of the project was imported that an installation on a node does not have."""
    ours = isinstance(e, ImportError) and str(e.name).partition(".")[0] in {"paddock", "infra", "policy"}
    return ours and (isinstance(e, ModuleNotFoundError) or find_spec("infra") is None)


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr)  # noqa: T201 (the program's own voice)
