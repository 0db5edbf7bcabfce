"""Daemons in the foreground: output read, deaths noticed, restarts with growing pauses, an end in order."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paddock.errors import printable
from paddock.slurm.errors import SlurmError
from paddock.slurm.messages import row
from paddock.slurm.start.layout import User

_KEPT_LINES = 15
_STEADY_S = 60.0
"""Seconds after which a daemon's earlier deaths no longer count."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Daemon:
    """Program to keep running. `command` is evaluated before each start, and may prepare it."""

    name: str
    command: Callable[[], Sequence[str]]
    user: User
    stop_s: float = 10.0


@dataclass(slots=True)
class _Running:
    daemon: Daemon
    process: subprocess.Popen[str]
    started: float
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    deaths: int = 0
    reader: threading.Thread | None = None
    due: float | None = None
    """Time of the next start of a daemon that died."""


class Supervisor:
    """Starts, watches and ends daemons, in the order in which they were started."""

    def __init__(self, say: Say, *, restarts: int = 5, pause_s: float = 1.0) -> None:
        self._say, self._restarts, self._pause_s = say, restarts, pause_s
        self._running: dict[str, _Running] = {}
        self._explained: set[str] = set()

    def start(self, daemon: Daemon) -> None:
        """Start a daemon, or start it again. Raises SlurmError where it is not there."""
        before = self._running.get(daemon.name)
        process = self._spawn(daemon)
        running = _Running(daemon, process, time.monotonic(), deaths=before.deaths if before else 0)
        self._running[daemon.name] = running
        running.reader = threading.Thread(target=self._read, args=(running,), daemon=True)
        running.reader.start()

    def alive(self, name: str) -> bool:
        """Return True while the daemon's process runs."""
        running = self._running.get(name)
        return running is not None and running.process.poll() is None

    def last_lines(self, name: str) -> list[str]:
        """Return the newest lines of a daemon's output."""
        running = self._running.get(name)
        return list(running.lines) if running else []

    def check(self) -> str | None:
        """Start again what died and is due. Return the name of a daemon that died too often, which ends the node."""
        for name, running in list(self._running.items()):
            code = running.process.poll()
            if code is None:
                continue
            if running.due is None:
                if running.reader:
                    running.reader.join(1)  # its last words; a job may hold the pipe open for longer
                steady = time.monotonic() - running.started > _STEADY_S
                running.deaths = 1 if steady else running.deaths + 1
                if running.deaths > self._restarts:
                    return name
                pause = min(self._pause_s * 2 ** (running.deaths - 1), 30.0)
                running.due = time.monotonic() + pause
                last = f": {running.lines[-1]}" if running.lines else ""
                self._say(f"{name} ended ({_cause(code)}){last}")
                self._say(f"{name} starts again in {pause:g} s ({running.deaths} of {self._restarts})")
            elif time.monotonic() >= running.due:
                self.start(running.daemon)
        return None

    def stop(self, name: str) -> None:
        """End a daemon: SIGTERM, and after its time SIGKILL."""
        running = self._running.pop(name, None)
        if running is None or running.process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            running.process.terminate()
        try:
            running.process.wait(running.daemon.stop_s)
        except subprocess.TimeoutExpired:
            self._say(f"{name} did not end within {running.daemon.stop_s:g} s, and is killed")
            running.process.kill()
            running.process.wait()

    def _spawn(self, daemon: Daemon) -> subprocess.Popen[str]:
        command = list(daemon.command())
        switched = os.geteuid() == 0 and daemon.user.pw_uid != 0
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                cwd="/",
                start_new_session=True,  # a Ctrl-C on the terminal is for this process, which ends them in order
                user=daemon.user.pw_uid if switched else None,
                group=daemon.user.pw_gid if switched else None,
                extra_groups=[] if switched else None,
            )
        except OSError as error:
            raise SlurmError(
                f"cannot start {command[0]}: {error.strerror}\n    expected: the image of Slurm, or Slurm and"
                " munge installed"
            ) from None

    def _read(self, running: _Running) -> None:
        assert running.process.stdout is not None  # noqa: S101 - it is a pipe
        with running.process.stdout as output:
            for line in output:
                text = printable(line.rstrip())
                running.lines.append(text)
                meaning = explained(text)
                if meaning and meaning not in self._explained:
                    self._explained.add(meaning)
                    self._say(f"{running.daemon.name}: {text}")
                    self._say(f"error: {meaning}")
                elif "fatal:" in text:
                    self._say(f"{running.daemon.name}: {text}")


def explained(line: str) -> str:
    """Return what a line of a log means, with its fix; empty for an ordinary one."""
    known = row("logs", line)
    return f"{known['meaning']}\n    fix: {known['fix']}" if known else ""


def _cause(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit {code}"
