"""The docker client as a process, ended with what waits for it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from paddock.images.docker.model import Finished
from paddock.images.errors import BuildError, BuildInputError

GRACE = 10.0
"""Seconds that an interrupted client has to tell the engine to stop."""


class TimedOut(BuildError):
    """The client did not end in time, and was ended."""


def call(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    stdin: str | None = None,
    stdout: int = subprocess.PIPE,
    timeout_s: float | None = 120,
    stop: Callable[[], object] | None = None,
) -> Finished:
    """Runs to the end. Raises TimedOut, and BuildInputError where the program cannot be run.

    `stdout` is a file for the output, which is not kept then. `stop` ends what the client waits for, where it is not
    to go on.
    """
    input_stream = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    with started(command, environ, stdin=input_stream, stdout=stdout, stop=stop) as process:
        try:
            out, err = process.communicate(None if stdin is None else stdin.encode(), timeout_s)
        except subprocess.TimeoutExpired:
            raise TimedOut(
                f"{Path(command[0]).name} {' '.join(command[1:2])} did not answer within {timeout_s:g} s and was ended"
                "\n    fix: see whether the engine answers: docker info"
            ) from None
    return Finished(process.returncode, (out or b"").decode(errors="replace"), err.decode(errors="replace"))


def follow(command: Sequence[str], environ: Mapping[str, str], on_line: Callable[[str], None]) -> int:
    """Runs to the end, giving each line of both outputs as it comes; the exit code."""
    with started(command, environ, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None  # noqa: S101 - started with a pipe
        for line in process.stdout:
            on_line(line.decode(errors="replace").rstrip("\r\n"))
    return process.returncode


@contextlib.contextmanager
def started(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    stop: Callable[[], object] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A client that has ended when the block has; interrupted where the block raises, so that the engine stops too.

    It stays in this process's group: credential helpers may have to ask on the terminal.
    """
    try:
        process = subprocess.Popen(
            list(command), env=dict(environ), stdin=stdin, stdout=stdout, stderr=stderr, bufsize=-1
        )
    except OSError as error:
        raise BuildInputError(
            f"cannot run {command[0]}: {error.strerror}\n    expected: a program\n    fix: install it again"
        ) from None
    with process:
        try:
            yield process
            process.wait()
        except BaseException:
            if stop is not None:
                stop()
            _end(process, politely=stop is None)
            if stop is not None:
                stop()  # again for what the client had only just begun
            raise


def _end(process: subprocess.Popen[bytes], politely: bool) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL) if politely else (signal.SIGKILL,):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(GRACE)
