"""A task on a terminal of its own, with somebody who types."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from collections.abc import Mapping, Sequence

from tests.support.door import Door

CTRL_C = "\x03"
_QUESTIONS = (b": ", b"? [y/N] ", b"? [Y/n] ")
_SECONDS = 120


def on_terminal(inv: Door, *words: str, env: Mapping[str, str], typed: Sequence[str]) -> tuple[int, str]:
    """Answer each question with the next text, then with Enter alone; return exit code and screen."""
    command, environment = inv.command(words), inv.environment(env)
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(inv.folder)
        os.execve(command[0], command, environment)
    shown, answered, answer, answers = b"", 0, "", iter(typed)
    deadline = time.monotonic() + _SECONDS
    try:
        while time.monotonic() < deadline:
            if not select.select([screen], [], [], 2)[0]:
                if answer == CTRL_C:  # pressed again: readline misses a signal that comes as it begins to read
                    os.write(screen, answer.encode())
                continue
            if not (piece := os.read(screen, 4096)):
                break
            shown += piece
            if shown.endswith(_QUESTIONS) and len(shown) > answered:
                answer = next(answers, "")
                os.write(screen, answer.encode() + (b"" if answer == CTRL_C else b"\r"))
                answered = len(shown) + len(answer) + 2  # what is typed is shown
        else:
            os.kill(pid, signal.SIGKILL)
    except OSError:
        pass  # the program has ended, and its side of the terminal is closed
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode(errors="replace")
