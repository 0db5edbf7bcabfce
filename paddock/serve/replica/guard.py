"""Guard of a program that a replica owns: `python -m paddock.serve.replica.guard PROGRAM [ARGUMENT...]`.

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

from paddock.process import end_session

_PR_SET_PDEATHSIG = 1
_OF_THIS_PROGRAM = ("PYTHON", "VIRTUAL_ENV", "PADDOCK_")
"""Beginnings of variables that belong to this environment of Python; those of Ray hold the cluster's token."""
JOINS = "PADDOCK_ENGINE_JOINS"
"""Set where the program is a driver of this cluster: vLLM over several machines."""
_OF_A_CLUSTER = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN")


def main(command: Sequence[str]) -> int:
    """Run a program until it ends or its owner is gone, and return its exit code: 128 and more for a signal."""
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
    ending = partial(end_session, program)
    threading.Thread(target=_watch_owner, args=(ending,), daemon=True).start()
    try:
        code = program.wait()
        return code if code >= 0 else 128 - code
    finally:
        ending()


def others_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a program of another environment gets."""
    kept = _OF_A_CLUSTER if environ.get(JOINS) else ()
    return {
        name: value
        for name, value in environ.items()
        if name in kept or not name.startswith(("RAY_", *_OF_THIS_PROGRAM))
    }


def _watch_owner(ending: partial[object]) -> None:
    # Not through sys.stdin, whose lock a thread that reads would hold while the interpreter ends.
    while os.read(0, 1024):
        pass
    ending()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
