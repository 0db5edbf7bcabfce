"""Run a program in a session of its own, so that all processes it starts can be ended with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from paddock.gpu.errors import GpuError, GpuInputError
from paddock.process import end_session, launch

OUTPUT_BYTES = 65536
"""Last bytes of each output to keep."""
GRACE = 10.0
"""Seconds from SIGTERM to SIGKILL."""
_KILL_SECONDS = 5.0
_POLL_SECONDS = 0.05


class TimedOut(GpuError):
    """Raised when the program exceeded its time and was ended."""


class Cancelled(GpuError):
    """Raised when the program was ended on request."""


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    """128 and the signal's number where one ended it."""
    output: str
    """The end of its standard output."""
    errors: str
    """The end of its standard error."""


def run(
    command: Sequence[str],
    *,
    stdin: str = "",
    environ: Mapping[str, str] | None = None,
    timeout: float | None = None,
    cancel: threading.Event | None = None,
    grace: float = GRACE,
) -> Finished:
    """Run the program to its end, and end all remaining processes of its session.

    Raises TimedOut after `timeout` seconds, Cancelled once `cancel` is set, GpuInputError where it cannot be started.
    """
    until = None if timeout is None else time.monotonic() + timeout
    with TemporaryFile() as standard_input, TemporaryFile() as output, TemporaryFile() as errors:
        standard_input.write(stdin.encode())
        standard_input.seek(0)
        try:
            process = launch(list(command), stdin=standard_input, stdout=output, stderr=errors, env=environ)
        except OSError as error:
            raise GpuInputError(
                f"cannot run {command[0]}: {error.strerror}\n    expected: a program on PATH, or with its path"
                "\n    fix: install it, or check its spelling"
            ) from None
        try:
            while process.poll() is None:
                if cancel is not None and cancel.is_set():
                    raise Cancelled(f"{_name(command)} was ended")
                if until is not None and time.monotonic() >= until:
                    raise TimedOut(f"{_name(command)} did not end within {timeout:g} s and was ended")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        finally:
            end_session(process, ((signal.SIGTERM, grace), (signal.SIGKILL, _KILL_SECONDS)), _POLL_SECONDS)
        code = process.returncode
        return Finished(code if code >= 0 else 128 - code, _tail(output), _tail(errors))


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - OUTPUT_BYTES))
    return file.read().decode(errors="replace")


def _name(command: Sequence[str]) -> str:
    return Path(command[0]).name
