"""An answer within a time, or none: a driver that hangs holds whoever asks it, and not even SIGKILL frees them."""

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

_PIECE = 1 << 16
_KILLED_WITHIN = 0.7
"""Seconds that a killed process needs at most on a busy machine, unless it hangs inside the kernel."""


class NoAnswer(GpuError):
    """It took longer than was given; `stuck`: not even SIGKILL ended it, so it hangs inside the kernel."""

    stuck = False


class Broken(GpuError):
    """What was to answer failed; the text is its traceback."""


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """What `work` returns, in JSON's own types. A child does it, since a call that hangs inside the kernel would keep
    this process from ending. A late child is killed, and left behind where that does not end it. Raises NoAnswer and
    Broken.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(writing, work)
    os.close(writing)
    until = time.monotonic() + seconds
    parts: list[bytes] = []
    try:
        while True:
            ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
            if not ready or not (part := os.read(reading, _PIECE)):
                break
            parts.append(part)
    finally:
        os.close(reading)
        ended = _end(child)
    if not ready:
        late = NoAnswer(f"no answer within {seconds:.1f} s")
        late.stuck = not ended
        raise late
    try:
        told = json.loads(b"".join(parts))
    except ValueError:
        raise Broken("the process that was asked ended without an answer") from None
    if "broken" in told:
        raise Broken(told["broken"])
    return told["answer"]


def _answer(writing: int, work: Callable[[], Any]) -> NoReturn:
    # Held open by a child that hangs, the hook's own output would keep the runner waiting for more of it.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    try:
        told = {"answer": work()}
        text = json.dumps(told)
    except BaseException:
        text = json.dumps({"broken": traceback.format_exc()})
    with os.fdopen(writing, "w") as pipe:
        pipe.write(text)
    os._exit(0)


def _end(child: int) -> bool:
    """Kills it, and waits no longer than a process needs that can be killed; whether it is gone."""
    os.kill(child, signal.SIGKILL)
    until = time.monotonic() + _KILLED_WITHIN
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True
