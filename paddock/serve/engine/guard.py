"""Guard of a program that a replica owns: `python -m paddock.serve.engine.guard PROGRAM [ARGUMENT...]`.

The replica holds the other end of the standard input. Once that is closed, also by a SIGKILL of the replica, the
program is ended with all that it started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial

from paddock.process import end, session_members

_PR_SET_PDEATHSIG = 1
_OF_THIS_PROGRAM = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PADDOCK_")
"""Beginnings of variables that belong to this environment of Python; those of Ray hold the cluster's token."""


def main(command: Sequence[str]) -> int:
    """Run a program until it ends or its owner has gone, and return its exit code."""
    # A signal that comes to this process ends the program, too: the pipe is not closed then.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        # Set between fork and exec, while this process has one thread.
        program = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env=others_environment(os.environ), start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )  # fmt: skip
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", flush=True)  # noqa: T201 - goes to the log
        return 127
    ending = partial(end, lambda: session_members(program.pid) or ([] if program.poll() is not None else [program.pid]))
    threading.Thread(target=_watch_owner, args=(ending,), daemon=True).start()
    try:
        return program.wait()
    finally:
        ending()


def others_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a program of another environment gets."""
    return {name: value for name, value in environ.items() if not name.startswith(("RAY_", *_OF_THIS_PROGRAM))}


def _watch_owner(ending: partial[object]) -> None:
    # Not through sys.stdin, whose lock a thread that reads would hold while the interpreter ends.
    while os.read(0, 1024):
        pass
    ending()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
