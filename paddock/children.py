"""Child processes that end with this one: however it ends, each takes its own children along.

A child has a session of its own, so that it can be ended with all that it started, and its input is a pipe from this
process. The kernel closes the pipe when this process ends, also after SIGKILL, and the child that watches it ends too.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.process import launch

_ENDS_WITHIN = 2.0
"""Seconds within which a killed process ends, unless it hangs inside the kernel."""
_LAST_WORDS = 400
_PACKAGE = Path(__file__).parents[1]
"""The folder that holds `paddock`."""


class Stopped(Exception):
    """The children were stopped."""


class Child:
    """A process that runs; its output is read line by line, and its errors are kept."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start it. Raises OSError."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._ended = False
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        try:
            self._process: subprocess.Popen[str] = launch(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                errors="replace",
                env=dict(environ),
            )
        except BaseException:
            self._errors.close()
            raise
        try:
            threading.Thread(target=self._read, daemon=True).start()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, seconds: float) -> str | None:
        """Return its next line of output; None once it has closed its output. Raises TimeoutError."""
        try:
            line = self._lines.get(timeout=None if seconds == math.inf else max(0.0, seconds))
        except queue.Empty:
            raise TimeoutError(f"no output within {seconds:g} s") from None
        if line is None:
            self._lines.put(None)
        return line

    def lines(self, seconds: float) -> Iterator[str]:
        """Yield its lines until it closes its output. Raises TimeoutError where that takes longer."""
        deadline = time.monotonic() + seconds
        while (line := self.line(deadline - time.monotonic())) is not None:
            yield line

    def send(self, line: str) -> None:
        """Write one line to its input; nothing happens where it has ended."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()

    def end_input(self) -> None:
        """Close its input, which asks it to end."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def code(self, seconds: float = _ENDS_WITHIN) -> int:
        """Return its exit code, negative for a signal. Raises TimeoutError where it does not end."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError("it does not end") from None
        self.signal()  # what it started and left behind
        self._ended = True
        return code

    def last_words(self) -> str:
        """Return the last line of its errors."""
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return text.splitlines()[-1][:_LAST_WORDS] if text else "it printed nothing"

    def kill(self) -> bool:
        """End it and all that it started; return False where it hangs inside the kernel and is left behind."""
        self.signal()
        with contextlib.suppress(TimeoutError):
            self.code()
        return self._ended

    def signal(self) -> None:
        """Send SIGKILL to it and all that it started, and wait for nothing."""
        if not self._ended:  # its number may be another process's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it, and give back what it held here."""
        self.kill()
        self.end_input()
        self._errors.close()

    def _read(self) -> None:
        if self._process.stdout is not None:
            with self._process.stdout as output, contextlib.suppress(ValueError):
                for line in output:
                    self._lines.put(line)
        self._lines.put(None)


class Children:
    """Children that run now; `stop` ends them all, from any thread."""

    def __init__(self) -> None:
        self._running: set[Child] = set()
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    @contextlib.contextmanager
    def started(self, command: Sequence[str], environ: Mapping[str, str]) -> Iterator[Child]:
        """Yield a new child, which ends with the block. Raises OSError, and Stopped after `stop`."""
        with self._lock:
            if self._stopped:
                raise Stopped
            child = Child(command, environ)
            self._running.add(child)
        try:
            yield child
        finally:
            with self._lock:
                self._running.discard(child)
            child.close()

    def stop(self) -> None:
        """Kill all children, and let no further one start."""
        with self._lock:
            self._stopped = True
            for child in self._running:
                child.signal()


def start_of(module: str, call: str = "main(*sys.argv[1:])", *, first: bool = False) -> str:
    """Return Python text that calls `main` of a module of this package, also in an interpreter without it.

    The package's folder comes last, since another interpreter's own packages are the right ones for it; `first` makes
    sure that the module is of this version.
    """
    place = f"sys.path.insert(0, {str(_PACKAGE)!r})" if first else f"sys.path.append({str(_PACKAGE)!r})"
    return f"import sys; {place}; from {module} import main; {call}"


def document(line: str) -> dict[str, Any] | None:
    """Return the JSON object that a child has printed on a line; None for anything else."""
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return None


def next_line() -> str:
    """Return the next line of this process's input, empty at its end. Later reads find everything behind it."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode(errors="replace")


def end_with_parent() -> None:
    """Watch this process's input from now on, and end with all that it started once its parent has ended."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
