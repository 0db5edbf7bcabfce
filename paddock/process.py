"""Processes: identified by pid and start time, never by name, and ended politely before they are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

PROC = Path("/proc")
TERMINATE_THEN_KILL = ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0))
"""Signals in their order, each with the seconds to wait after it."""
STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """Fields of a process in /proc/PID/stat."""

    name: str
    state: str
    parent: int
    session: int
    threads: int
    start: int
    """Clock ticks since boot."""
    image: tuple[str, ...]
    """Where its program, arguments and stack are: those of its parent until it calls exec, which places them again.
    Empty where that may not be read."""

    @property
    def ended(self) -> bool:
        """True for a zombie. The main thread of a process that lives may end before the others and then looks so."""
        return self.state in "ZX" and self.threads <= 1


def read_stat(pid: int | str, proc: Path = PROC) -> ProcessStat | None:
    """Return None where the process does not exist, or no /proc."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    before, _, after = text.rpartition(")")  # the name is in parentheses and may hold anything
    fields = after.split()
    image = (*fields[23:26], *fields[42:49]) if fields[25] != "0" else ()
    return ProcessStat(
        name=before.partition("(")[2],
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        threads=int(fields[17]),
        start=int(fields[19]),
        image=image,
    )


def launch(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a program as leader of a session of its own, and return it. Raises OSError where it cannot be.

    An exception of a signal handler, as that of Ctrl-C, ends the program where it comes before that.
    """
    from concurrent.futures import Future

    starting: Future[subprocess.Popen[Any]] = Future()

    def start() -> None:  # in a thread of its own, because signal handlers run in the main one
        if starting.set_running_or_notify_cancel():
            try:
                starting.set_result(subprocess.Popen(command, start_new_session=True, **options))
            except BaseException as error:
                starting.set_exception(error)

    try:
        threading.Thread(target=start).start()
        return starting.result()
    except BaseException:
        if not starting.cancel() and starting.exception() is None:
            with starting.result() as process, contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        raise


def pids(proc: Path = PROC) -> list[int]:
    """Return the processes that /proc lists; none on a system without it."""
    try:
        return [int(name) for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return []


def session_members(leader: int, proc: Path = PROC) -> list[int]:
    """Return the processes of the session that `leader` leads, without zombies."""
    if not (proc / "self/stat").exists():
        return [pid for pid, _ in _listed() if _session(pid) == leader]
    return [pid for pid in pids(proc) if (stat := read_stat(pid, proc)) and stat.session == leader and not stat.ended]


def pids_naming(text: str, proc: Path = PROC) -> list[int]:
    """Return the other processes whose command line holds the text, without zombies."""
    if not (proc / "self/stat").exists():
        return [pid for pid, command in _listed() if text in command and pid != os.getpid()]
    found = []
    for pid in pids(proc):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if pid != os.getpid() and text.encode() in (proc / str(pid) / "cmdline").read_bytes():
                found.append(pid)
    return found


def _listed() -> list[tuple[int, str]]:
    """Return pid and command line of every process but zombies, on a system without /proc."""
    listing = subprocess.run(["ps", "-axww", "-o", "pid=,stat=,command="], capture_output=True, text=True, check=False)
    rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
    return [(int(row[0]), row[2]) for row in rows if len(row) == 3 and not row[1].startswith("Z")]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def boot_id(proc: Path = PROC) -> str:
    """Identify this start of the machine; empty where the system does not say."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_time(pid: int) -> str | None:
    """Return when the process began, in the system's own form; None where there is none, or only a zombie."""
    with contextlib.suppress(OSError):
        os.waitpid(pid, os.WNOHANG)  # a child of this process stays a zombie until its status is read
    if (PROC / "self/stat").exists():
        stat = read_stat(pid)
        return f"{boot_id()}:{stat.start}" if stat and not stat.ended else None
    listing = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = listing.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


@dataclass(frozen=True, slots=True)
class Process:
    """A process. Its start time distinguishes it from a later one with the same pid."""

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started


def spawn(
    command: Sequence[str | Path], log: Path, record: Callable[[Process], None], environ: Mapping[str, str]
) -> Process:
    """Start `command` in a session of its own with its output in `log`.

    `record` is called before a Ctrl-C can come between the start and the record. Raises OSError.
    """
    words = [str(word) for word in command]
    output = (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    with blocked(STOP_SIGNALS):
        pid = os.posix_spawn(
            words[0],
            words,
            dict(environ),
            file_actions=[no_input, output, (os.POSIX_SPAWN_DUP2, 1, 2)],
            setsid=True,  # a Ctrl-C in the terminal, or its end, is not for it
            setsigmask=[],
        )
        process = Process(pid, start_time(pid) or "ended")
        record(process)
    return process


def end_processes(processes: Iterable[Process], grace: float = 10.0) -> list[Process]:
    """End these processes and return those that even SIGKILL does not end. A pid with another start time is spared."""
    running = list(processes)

    def living() -> list[int]:
        running[:] = [process for process in running if process.alive]
        return [process.pid for process in running]

    end(living, ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)))
    return running


def end_session(
    leader: subprocess.Popen[Any],
    signals: Iterable[tuple[signal.Signals, float]] = TERMINATE_THEN_KILL,
    interval: float = 0.03,
) -> Collection[int]:
    """End a program that leads its session with all that it started; return the pids that are left."""

    def living() -> Collection[int]:
        running = [leader.pid] if leader.poll() is None else []
        return session_members(leader.pid) or running

    return end(living, signals, interval)


def end(
    living: Callable[[], Collection[int]],
    signals: Iterable[tuple[signal.Signals, float]] = TERMINATE_THEN_KILL,
    interval: float = 0.03,
) -> Collection[int]:
    """Send each signal to the pids that `living` returns, until it returns none; return those that are left.

    Another user's processes cannot be signalled, and stay.
    """
    remaining = living()
    for number, patience in signals:
        if not remaining:
            break
        deadline = time.monotonic() + patience
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        while (remaining := living()) and time.monotonic() < deadline:
            time.sleep(interval)
    return remaining


@contextlib.contextmanager
def blocked(signals: Iterable[signal.Signals]) -> Iterator[None]:
    """Deliver these signals to this thread only after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, with which CI systems cancel a job, so that both clean up alike."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
