"""Keep an agent joined: python -m paddock.serve.agents.keep HOST PORT COMMAND... runs Ray, and again once it ended.

Where the head's port refuses connections the head is gone, and this ends the agent's Ray, whose processes would wait
for it. When a head answers there again, this joins it. The first start that fails ends this, with Ray's exit code: then
nothing was joined.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from types import FrameType

STARTED = "Ray runtime started"
"""Line of Ray once it runs."""
_PAUSE_S, _CONNECT_S = 0.5, 2.0
_REFUSALS = 2
"""Refused connections, one a pause, after which the head is gone. A new one may answer there within three seconds, and
what belongs to the former waits for it then for most of a minute."""


class Keeper:
    """One agent's Ray, started again whenever it ends."""

    def __init__(self, host: str, port: int, command: list[str]) -> None:
        self._host, self._port, self._command = host, port, command
        self._child: subprocess.Popen[str] | None = None
        self._ending = False

    def run(self) -> int:
        """Return the exit code, after SIGTERM or a first start that failed."""
        signal.signal(signal.SIGTERM, self._end)
        joined = False
        while not self._ending:
            code, started = self._once()
            joined = joined or started
            if not joined:
                return code
            if not self._ending:
                print(f"Ray ended with {code}; joining {self._host}:{self._port} again", flush=True)  # noqa: T201 - its log
            while not self._ending and self._connect():
                time.sleep(_PAUSE_S)
        return 0

    def _once(self) -> tuple[int, bool]:
        """Run Ray until it ends, and return its exit code and whether it had started."""
        started = False
        self._child = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if self._ending:
            self._child.terminate()
        threading.Thread(target=self._watch_head, args=(self._child,), daemon=True).start()
        for line in self._child.stdout or ():
            started = started or STARTED in line
            sys.stdout.write(line)
            sys.stdout.flush()
        return self._child.wait(), started

    def _watch_head(self, child: subprocess.Popen[str]) -> None:
        """End Ray once its head is gone. A network without answers is not proof of that."""
        refusals = 0
        while child.poll() is None:
            refusals = refusals + 1 if isinstance(self._connect(), ConnectionRefusedError) else 0
            if refusals == _REFUSALS:
                child.terminate()
                return
            time.sleep(_PAUSE_S)

    def _connect(self) -> OSError | None:
        """Connect to the head's port, and return the error if that fails."""
        try:
            socket.create_connection((self._host, self._port), _CONNECT_S).close()
        except OSError as error:
            return error
        return None

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ending = True
        if self._child and self._child.poll() is None:
            self._child.terminate()


if __name__ == "__main__":
    sys.exit(Keeper(sys.argv[1], int(sys.argv[2]), sys.argv[3:]).run())
