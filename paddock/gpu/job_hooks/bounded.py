"""Calls with a time limit, each in a child process.

`paddock.process` ends processes that can be ended. A call into a driver that hangs cannot: not even SIGKILL frees the
caller, so it must be a child that this process can leave behind.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from paddock.gpu.errors import GpuError

_CHUNK = 1 << 16
_KILLED_WITHIN = 0.7
"""Seconds within which a killed process ends on a busy machine, unless it hangs inside the kernel."""


class NoAnswer(GpuError):
    """The call took too long; `stuck` means that not even SIGKILL ended it, so it hangs inside the kernel."""

    stuck = False


class Broken(GpuError):
    """The call failed; the text is its traceback."""


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """Run `work` in a child and return its result, which must be JSON. A late child is killed, and left behind if that
    does not end it. Raises NoAnswer and Broken.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run_child(writing, work)
    os.close(writing)
    deadline = time.monotonic() + seconds
    chunks: list[bytes] = []
    try:
        while True:
            ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
            if not ready or not (chunk := os.read(reading, _CHUNK)):
                break
            chunks.append(chunk)
    finally:
        os.close(reading)
        ended = _end(child)
    if not ready:
        timeout = NoAnswer(f"no answer within {seconds:.1f} s")
        timeout.stuck = not ended
        raise timeout
    try:
        answer = json.loads(b"".join(chunks))
    except ValueError:
        raise Broken("the child process ended without an answer") from None
    if "broken" in answer:
        raise Broken(answer["broken"])
    return answer["answer"]


def _run_child(writing: int, work: Callable[[], Any]) -> NoReturn:
    # If a hanging child kept the hook's output open, the runner would wait for more of it.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    try:
        answer = {"answer": work()}
        text = json.dumps(answer)
    except BaseException:
        text = json.dumps({"broken": traceback.format_exc()})
    with os.fdopen(writing, "w") as pipe:
        pipe.write(text)
    os._exit(0)


def _end(child: int) -> bool:
    """Kill the child, wait for it briefly, and return whether it ended."""
    os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + _KILLED_WITHIN
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True
