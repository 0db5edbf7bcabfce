"""The lab's processes: started in sessions of their own, known by id and start time, ended by id and never by name."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock.lab.errors import LabError

GRACE_SECONDS = 10.0
MARK = "PADDOCK_LAB_FOLDER"
"""In the environment of everything that a lab starts, and so of what that starts in turn: the lab's folder."""
_STOPPING = {signal.SIGINT, signal.SIGTERM}


@dataclass(frozen=True, slots=True)
class Process:
    """One process that the lab started. Ids are given anew by the system, so the start time belongs to its name."""

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started


def start(
    command: Sequence[str | Path], log: Path, record: Callable[[Process], None], environment: Mapping[str, str]
) -> Process:
    """Starts `command` with its output in `log`, and calls `record` before a Ctrl-C can come between the two."""
    words = [str(word) for word in command]
    output = (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    quiet = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    with _uninterrupted():
        try:
            pid = os.posix_spawn(
                words[0],
                words,
                dict(environment),
                file_actions=[quiet, output, (os.POSIX_SPAWN_DUP2, 1, 2)],
                setsid=True,  # a Ctrl-C in the terminal, or its end, is not for them
                setsigmask=[],
            )
        except OSError as error:
            raise LabError(f"cannot start {words[0]}: {error.strerror}, with its log in {log}") from None
        process = Process(pid, start_time(pid) or "ended")
        record(process)
    return process


def stop(processes: Iterable[Process], grace: float = GRACE_SECONDS) -> None:
    """Ends these processes and waits until they are gone. One that is not what it was is left alone."""
    remaining = [process for process in processes if _signal(process, signal.SIGTERM)]
    remaining = _wait(remaining, grace)
    remaining = [process for process in remaining if _signal(process, signal.SIGKILL)]
    remaining = _wait(remaining, 5)
    if remaining:
        raise LabError(f"processes {', '.join(str(process.pid) for process in remaining)} do not end, even by SIGKILL")


def marked(folder: Path) -> list[Process]:
    """What has this folder, or one in it, for its mark; none where the system does not tell (without /proc)."""
    mark = f"{MARK}={folder}".encode()
    processes = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:  # another user's, or gone
            continue
        if any(variable == mark or variable.startswith(mark + b"/") for variable in variables):
            pid = int(path.parent.name)
            if pid != os.getpid() and (started := start_time(pid)):
                processes.append(Process(pid, started))
    return processes


def start_time(pid: int) -> str | None:
    """When the process began, in the system's own words; None where there is none, or only its remains."""
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)  # a child of ours that ended stays in the table until someone asks
    if Path("/proc/self/stat").exists():
        try:
            # The program's name stands in parentheses and may hold anything.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else f"{boot()}:{fields[19]}"
    completed = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, start = completed.stdout.strip().partition(" ")
    return start.strip() if start and not state.startswith("Z") else None


def boot() -> str:
    """Which start of the machine this is; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def tail(log: Path, lines: int = 8) -> str:
    """The end of a log, indented for a message; what a Go program says before its stack, which tells a user nothing."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            output = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        output = []
    output = list(itertools.takewhile(lambda line: not line.startswith("goroutine "), output)) or output
    return "\n".join(f"    | {line[:400]}" for line in output[-lines:]) or "    | (it said nothing)"


def _signal(process: Process, number: signal.Signals) -> bool:
    if not process.alive:
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def _wait(processes: list[Process], seconds: float) -> list[Process]:
    deadline = time.monotonic() + seconds
    while (processes := [process for process in processes if process.alive]) and time.monotonic() < deadline:
        time.sleep(0.03)
    return processes


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
