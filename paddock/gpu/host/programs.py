"""Run a program with an end: in a session of its own, so that all that it starts can be ended with it."""

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

KEPT = 65536
"""Bytes of each output that are kept, the last ones."""
GRACE = 10.0
"""Seconds from SIGTERM to SIGKILL."""
_KILLED_WITHIN = 5.0
_LOOKED_EVERY = 0.05


class TimedOut(GpuError):
    """The program did not end in time, and was ended."""


class Cancelled(GpuError):
    """The program was ended because nobody waits for it any more."""


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
    """Raises TimedOut after `timeout` seconds, Cancelled once `cancel` is set, and GpuInputError for no program.

    However it ends, nothing of its session is left but what has made a session of its own.
    """
    until = None if timeout is None else time.monotonic() + timeout
    with TemporaryFile() as given, TemporaryFile() as output, TemporaryFile() as errors:
        given.write(stdin.encode())
        given.seek(0)
        try:
            process = subprocess.Popen(
                list(command), stdin=given, stdout=output, stderr=errors, env=environ, start_new_session=True
            )
        except OSError as error:
            raise GpuInputError(
                f"cannot run {command[0]}: {error.strerror}\n    expected: a program on PATH, or with its path"
                "\n    fix: install it, or see how it is written"
            ) from None
        try:
            while process.poll() is None:
                if cancel is not None and cancel.is_set():
                    raise Cancelled(f"{_name(command)} was ended")
                if until is not None and time.monotonic() >= until:
                    raise TimedOut(f"{_name(command)} did not end within {timeout:g} s and was ended")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOKED_EVERY)
        finally:
            _end(process, grace)
        code = process.returncode
        return Finished(code if code >= 0 else 128 - code, _tail(output), _tail(errors))


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    """The program and all of its session, first politely. Another user's processes stay."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILLED_WITHIN)):
        until = time.monotonic() + patience
        for pid in _session(process):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        while (left := _session(process)) and time.monotonic() < until:
            time.sleep(_LOOKED_EVERY)
        if not left:
            return


def _session(process: subprocess.Popen[bytes]) -> list[int]:
    """The pids of the session that the program leads, without those that only wait to be reaped."""
    running = [process.pid] if process.poll() is None else []
    try:
        folders = [one for one in Path("/proc").iterdir() if one.name.isdecimal()]
    except OSError:
        return running  # not Linux: the program alone
    return [int(one.name) for one in folders if _leader(one) == process.pid] or running


def _leader(folder: Path) -> int | None:
    """Of a live process's session."""
    try:
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[3])


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - KEPT))
    return file.read().decode(errors="replace")


def _name(command: Sequence[str]) -> str:
    return Path(command[0]).name
