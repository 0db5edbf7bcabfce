"""Program that a replica owns, such as another engine's server: started under a guard, with a log of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddock.serve.engine import guard

_END_S = 30.0
_LOG_BYTES = 16384


class Program:
    """A running program. It ends with this process, whichever way that ends."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._log = tempfile.NamedTemporaryFile(prefix="paddock-engine-", suffix=".log")  # noqa: SIM115 - until it ends
        self._guard = subprocess.Popen(
            [sys.executable, "-m", guard.__name__, *command], stdin=subprocess.PIPE, stdout=self._log,
            stderr=subprocess.STDOUT, env={**os.environ, **environ}, start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Return the guard's."""
        return self._guard.pid

    def ended(self) -> str:
        """Return why it has ended, with its last words; empty while it runs."""
        code = self._guard.poll()
        if code is None:
            return ""
        last = self.log().strip().splitlines()[-1:] or ["it printed nothing"]
        return f"it ended with code {code}: {last[0].strip()}"

    def log(self) -> str:
        """Return the end of what it printed."""
        data = Path(self._log.name).read_bytes()
        return data[-_LOG_BYTES:].decode(errors="replace")

    def end(self) -> None:
        """End it. A second call does nothing."""
        if self._guard.stdin and not self._guard.stdin.closed:
            self._guard.stdin.close()
        try:
            self._guard.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self._log.close()
