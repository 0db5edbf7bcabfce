"""One run of Pulumi in a session of its own, nothing of which outlives it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO

from paddock.process import end_session, launch

GRACE = 30.0
"""Seconds that Pulumi has to end after its time limit or a second Ctrl-C."""
Popen = subprocess.Popen[str]


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has ended; `interrupted` where Ctrl-C came."""

    code: int
    """Negative for the signal that ended it."""
    output: str
    errors: str
    interrupted: bool = False


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    stdin: str = "",
    limit: float | None = None,
    patience: float | None = None,
    on_line: Callable[[str], None] | None = None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> Finished:
    """Run to the end. `on_line` is called with each line of output, in a thread of its own.

    Ctrl-C interrupts it, and it finishes what it is making, within `patience` seconds if given; a second one ends it.
    After `limit` seconds it is interrupted as well. Raises TimeoutExpired with its output then.
    """
    running = launch(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    out, err = _Output(running.stdout, on_line), _Output(running.stderr)
    interrupted = False
    try:
        _write(running, stdin)
        try:
            running.wait(limit)
        except KeyboardInterrupt:
            interrupted = True
            _interrupt(running, patience, on_interrupt)
        except subprocess.TimeoutExpired as late:
            _interrupt(running, GRACE)
            late.output = out.so_far
            raise
    finally:
        # The language host and plugins are in process groups of their own, and outlive an engine that was killed.
        end_session(running, ((signal.SIGKILL, GRACE),))
    return Finished(running.returncode, out.text, err.text, interrupted)


def _write(running: Popen, text: str) -> None:
    assert running.stdin is not None  # noqa: S101 - the program was started with pipes
    with suppress(BrokenPipeError), running.stdin:
        running.stdin.write(text)


def _interrupt(running: Popen, patience: float | None, on_interrupt: Callable[[], None] = lambda: None) -> None:
    running.send_signal(signal.SIGINT)
    try:
        on_interrupt()
        running.wait(patience)
    except subprocess.TimeoutExpired:
        return
    except KeyboardInterrupt:
        running.send_signal(signal.SIGINT)  # Pulumi, too, ends at once at the second
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            running.wait(GRACE)


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
    def so_far(self) -> str:
        return "".join(list(self._lines))

    @property
    def text(self) -> str:
        """Return the whole output, once the process has ended."""
        self.join()
        return "".join(self._lines)
