"""Calls with a time limit.

`paddock.process` ends processes that can be ended. A call into a driver that hangs cannot: not even SIGKILL frees the
caller, so it must be a child that this process can leave behind.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import select
import signal
import struct
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from paddock.gpu.errors import DriverHangs, GpuError, GpuInputError

_Answer = TypeVar("_Answer")
_CHUNK = 1 << 16
_KILLED_WITHIN = 0.7
"""Seconds within which a killed process ends on a busy machine, unless it hangs inside the kernel."""
_SECONDS = 60.0
"""Limit of one answer of the driver: NVSwitches without persistence mode take up to 25 s to start."""
_LENGTH = struct.Struct("=Q")
_CALL = struct.Struct("=d56s")

_current: mmap.mmap | None = None
"""The driver call that is under way and when it began, in memory that a child shares."""


class NoAnswer(GpuError):
    """The call took too long; `stuck` means that not even SIGKILL ended it, so it hangs inside the kernel."""

    stuck = False


class Broken(GpuError):
    """The call failed; the text is its traceback."""


def entering(call: str) -> None:
    """Note the driver call that begins, for the message in case it never ends; empty after the last one."""
    if _current is not None:
        _current[: _CALL.size] = _CALL.pack(time.monotonic(), call.encode()[:56])


def limit() -> float:
    """Return the seconds that the driver has for one answer, PADDOCK_GPU_DEADLINE. Raises GpuInputError."""
    text = os.environ.get("PADDOCK_GPU_DEADLINE") or f"{_SECONDS:g}"
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) <= 86400:
            return seconds
    raise GpuInputError(f"PADDOCK_GPU_DEADLINE is {text!r}\n    expected: seconds, above 0 and at most a day")


def answer(work: Callable[[], _Answer]) -> _Answer:
    """Return what `work` gets from the driver. Raises DriverHangs, and the errors of `work`."""
    with Bounded(work) as bounded:
        result: _Answer = bounded()
    return result


class Bounded:
    """A reading of the driver, for several calls; each has the time limit.

    It is done in a child. In a process with several threads it is done in another thread instead, which may be left
    behind just so: a fork would copy the locks that other threads hold. Raises DriverHangs, and the errors of `work`.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._seconds = limit()
        _note_calls()
        self._work = work
        self._child = _Child(lambda: _outcome(work)) if threading.active_count() == 1 else None

    def __enter__(self) -> Bounded:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child:
            self._child.end()

    def __call__(self) -> Any:
        entering("")
        if self._child is None:
            return in_thread(self._work, self._seconds)
        try:
            result, error = self._child.ask(self._seconds)
        except NoAnswer:
            raise _hangs(self._seconds) from None
        if error is not None:
            raise error
        return result


def in_thread(work: Callable[[], _Answer], seconds: float | None = None) -> _Answer:
    """Do `work` in a thread, which is left behind when it takes too long. Raises DriverHangs, and its own errors."""
    seconds = limit() if seconds is None else seconds
    _note_calls()
    outcomes: list[tuple[Any, BaseException | None]] = []
    thread = threading.Thread(target=lambda: outcomes.append(_outcome(work, BaseException)), daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcomes:
        error = _hangs(seconds)
        error.thread = thread
        raise error
    result, failure = outcomes[0]
    if failure is not None:
        raise failure
    answer: _Answer = result
    return answer


def within(seconds: float, work: Callable[[], _Answer]) -> _Answer:
    """Run `work` in a child and return its result. A late child is killed, and left behind if that does not end it.

    Raises NoAnswer and Broken.
    """
    child = _Child(work)
    try:
        result: _Answer = child.ask(seconds)
    finally:
        ended = child.end()
        child.late.stuck = not ended
    return result


class _Child:
    """Child process that does the same work at each request."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.late = NoAnswer()
        requests_read, self._requests = os.pipe()
        self._answers, answers_write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._requests)
            os.close(self._answers)
            _serve(requests_read, answers_write, work)
        os.close(requests_read)
        os.close(answers_write)

    def ask(self, seconds: float) -> Any:
        """Return the result of the work. Raises NoAnswer and Broken."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, b"1")
        received = b""
        while len(received) < _LENGTH.size or len(received) < _LENGTH.size + _LENGTH.unpack_from(received)[0]:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.late.args = (f"no answer within {seconds:.1f} s",)
                raise self.late
            if not (chunk := os.read(self._answers, _CHUNK)):
                raise Broken("the child process ended without an answer")
            received += chunk
        result, broken = pickle.loads(received[_LENGTH.size :])  # noqa: S301 - from our own child
        if broken:
            raise Broken(broken)
        return result

    def end(self) -> bool:
        """Kill the child, wait for it briefly, and return whether it ended."""
        os.close(self._requests)
        os.close(self._answers)
        os.kill(self._pid, signal.SIGKILL)
        deadline = time.monotonic() + _KILLED_WITHIN
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True


def _serve(requests: int, answers: int, work: Callable[[], Any]) -> NoReturn:
    # If a hanging child kept this process's output open, its reader would wait for more of it.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    status = 0
    try:
        while os.read(requests, 1):
            try:
                result = pickle.dumps((work(), ""))
            except BaseException:
                result = pickle.dumps((None, traceback.format_exc()))
            rest = memoryview(_LENGTH.pack(len(result)) + result)
            while rest:
                rest = rest[os.write(answers, rest) :]
    except BaseException:
        status = 1
    os._exit(status)


def _outcome(
    work: Callable[[], _Answer], errors: type[BaseException] = GpuError
) -> tuple[_Answer | None, BaseException | None]:
    try:
        return work(), None
    except errors as error:
        return None, error


def _note_calls() -> None:
    global _current
    if _current is None:
        _current = mmap.mmap(-1, mmap.PAGESIZE)


def _hangs(seconds: float) -> DriverHangs:
    began, name = _CALL.unpack_from(_current) if _current is not None else (0.0, b"")
    call = name.rstrip(b"\0").decode()
    waited = time.monotonic() - began
    what = f"{call} has not returned for {waited:.0f} s" if call else f"no answer within {seconds:g} s"
    return DriverHangs(
        f"the GPU driver hangs: {what}\n    expected: an answer within {seconds:g} s (PADDOCK_GPU_DEADLINE)"
        "\n    fix: see `dmesg | grep -i nvrm`, and reboot the machine: nothing else frees a driver that hangs"
    )
