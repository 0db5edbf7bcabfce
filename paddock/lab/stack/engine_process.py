"""One run of the engine in a process group of its own, none of which outlives the run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import IO

from paddock.process import launch

_GRACE = 30.0
"""Seconds that an interrupted engine has to finish what it is making."""


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    limit: float,
    started: Callable[[subprocess.Popen[str]], None],
    *,
    stdin: str | None = None,
    on_line: Callable[[str], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run to the end. `on_line` is called with each line of output, in a thread of its own.

    After `limit` seconds, or with this process, it is interrupted. Raises TimeoutExpired with its output.
    """
    process = launch(
        command,
        env=environment,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started(process)
    out, err = _Output(process.stdout, on_line), _Output(process.stderr)
    try:
        _wait(process, limit, stdin)
    except subprocess.TimeoutExpired as late:
        late.output = out.text
        raise
    return subprocess.CompletedProcess(command, process.returncode, out.text, err.text)


def _wait(process: subprocess.Popen[str], limit: float, stdin: str | None) -> None:
    try:
        if process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(stdin or "")
        try:
            process.wait(limit)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
            raise
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode < 0:
            _end_session(process.pid)


class _Output(Thread):
    """Output of a process, read line by line while it runs."""

    def __init__(self, stream: IO[str] | None, on_line: Callable[[str], None] | None = None) -> None:
        super().__init__(daemon=True)
        assert stream is not None  # noqa: S101 - the process was started with pipes
        self._stream, self._on_line, self._lines = stream, on_line, list[str]()
        self.start()

    def run(self) -> None:
        with self._stream:
            for line in self._stream:
                self._lines.append(line)
                if self._on_line:
                    self._on_line(line)

    @property
    def text(self) -> str:
        """Return the whole output, once the process has ended."""
        self.join()
        return "".join(self._lines)


def _end_session(session: int) -> None:
    """Kill what a killed engine leaves: language host and plugins are in process groups of their own.

    By `ps`, because the engine also runs on systems without /proc.
    """
    listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True, check=False).stdout
    for pid in map(int, listed.split()):
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
