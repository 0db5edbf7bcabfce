"""Processes of the lab: started with its mark, and ended with everything that they started in turn."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from paddock import process
from paddock.lab.errors import LabError
from paddock.process import Process

MARK = "PADDOCK_LAB_FOLDER"
"""In the environment of everything that a lab starts, and so of what that starts in turn: the lab's folder."""


def start(
    command: Sequence[str | Path], log: Path, record: Callable[[Process], None], environment: Mapping[str, str]
) -> Process:
    """Start `command` with its output in `log`; `record` is called before a Ctrl-C can prevent it. Raises LabError."""
    try:
        return process.spawn(command, log, record, environment)
    except OSError as error:
        raise LabError(f"cannot start {command[0]}: {error.strerror}, with its log in {log}") from None


def stop(processes: Iterable[Process]) -> None:
    """End these processes and wait until they are gone. Raises LabError."""
    if remaining := process.end_processes(processes):
        pids = ", ".join(str(survivor.pid) for survivor in remaining)
        raise LabError(f"processes {pids} do not end, even by SIGKILL")


def marked(folder: Path) -> list[Process]:
    """Return the processes with this folder, or one in it, as their mark; none on a system without /proc."""
    mark = f"{MARK}={folder}".encode()
    processes = []
    for pid in process.pids():
        try:
            variables = (process.PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        has_mark = any(variable == mark or variable.startswith(mark + b"/") for variable in variables)
        if has_mark and pid != os.getpid() and (started := process.start_time(pid)):
            processes.append(Process(pid, started))
    return processes


def tail(log: Path, lines: int = 8) -> str:
    """Return the end of a log, indented for a message; of a Go program's crash only the lines before its stack."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            output = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        output = []
    output = list(itertools.takewhile(lambda line: not line.startswith("goroutine "), output)) or output
    return "\n".join(f"    | {line[:400]}" for line in output[-lines:]) or "    | (it said nothing)"
