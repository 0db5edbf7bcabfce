"""Program that a replica owns: started under a guard, with the first and last lines of what it printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from paddock.serve.replica import guard

_END_S, _READ_S = 30.0, 5.0
_FIRST, _LAST = 200, 200
"""Lines that are kept of a log, which has no end: its beginning, and what came last."""


class Program:
    """A running program. It ends with this process, whichever way that ends."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=_LAST)
        self._guard = subprocess.Popen(
            [sys.executable, "-m", guard.__name__, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env={**os.environ, **environ}, start_new_session=True, errors="replace",
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, name="engine's log", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._guard.stdout or ():
            (self._first.append if len(self._first) < _FIRST else self._last.append)(line)

    @property
    def pid(self) -> int:
        """Return the guard's."""
        return self._guard.pid

    def ended(self, cause: Callable[[str], str] = lambda _: "") -> str:
        """Return how it has ended: the cause that its log names, else its last line; empty while it runs."""
        code = self._guard.poll()
        if code is None:
            return ""
        self._reader.join(_READ_S)
        how, number = f"it ended with code {code}", -code if code < 0 else code - 128
        if number in set(signal.Signals):
            how = f"{signal.Signals(number).name} has ended it"
        if number == signal.SIGKILL:
            return f"{how}, as the kernel does when memory runs out"
        last = self.log().strip().splitlines()[-1:] or ["it printed nothing"]
        return cause(self.log()) or f"{how}: {last[0].strip()}"

    def log(self) -> str:
        """Return the beginning and the end of what it printed."""
        return "".join([*self._first, *self._last])

    def forget(self) -> None:
        """Forget what it printed until now: the cause of an end comes after it."""
        self._first, self._last = [], deque(maxlen=_LAST)

    def end(self) -> None:
        """End it. A second call does nothing."""
        if self._guard.stdin and not self._guard.stdin.closed:
            self._guard.stdin.close()
        try:
            self._guard.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self._reader.join(_READ_S)
        if self._guard.stdout and not self._reader.is_alive():
            self._guard.stdout.close()
