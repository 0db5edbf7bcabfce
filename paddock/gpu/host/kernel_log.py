"""Kernel log since boot, from the first source that this user may read."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from paddock.gpu.host import machine
from paddock.gpu.host.machine import Run

_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")
"""A record of /dev/kmsg: level, number, microseconds since boot, flags; message. Indented lines of fields follow."""
_DATED = re.compile(r"(\d{4}-\d\d-\d\dT\S+) (.*)")
_PROGRAM = re.compile(r"(?:\S+ )?kernel: ")
"""Prefix of journalctl's messages: the host and the program."""
_READ = 8192
_MOST = 64 << 20
"""Maximum bytes of the log to read, more than any kernel keeps."""


@dataclass(frozen=True, slots=True)
class Line:
    """Line of the log; `at` is None where the log gives no time."""

    at: datetime | None
    text: str


@dataclass(frozen=True, slots=True)
class KernelLog:
    """Lines and their source; `reason` says why the log cannot be read."""

    lines: tuple[Line, ...] = ()
    source: Literal["kmsg", "journalctl", "dmesg"] | None = None
    reason: str | None = None


def read(*, since: timedelta | None = None, root: Path = Path("/"), run: Run | None = None) -> KernelLog:
    """Return the lines of the last `since`, or since boot. Raises nothing.

    `run` starts journalctl and dmesg; by default they are used only if `root` is this machine's own.
    """
    start = datetime.now(UTC) - since if since else None
    try:
        return KernelLog(_after(_kmsg(root), start), "kmsg")
    except OSError as error:
        why = error.strerror or str(error)
    if run is None and root == Path("/"):
        run = machine.run
    if run is not None:
        command = ["journalctl", "-k", "-b", "--no-pager", "-q", "-o", "short-iso"]
        output = run([*command, "--since", f"{start:%Y-%m-%d %H:%M:%S} UTC"] if start else command)
        if output:
            return KernelLog(_after(_lines(output), start), "journalctl")
        if output := run(["dmesg", "--time-format", "iso"]):
            return KernelLog(_after(_lines(output), start), "dmesg")
    return KernelLog(
        reason=f"the kernel log cannot be read (/dev/kmsg: {why}): be root, or in the group adm or systemd-journal;"
        " a container needs `--device /dev/kmsg --cap-add SYSLOG`"
    )


def _kmsg(root: Path) -> list[Line]:
    """Return all records. A read returns one record and never waits: EAGAIN marks the end. Raises OSError."""
    booted = _boot_time(root)
    file = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    parts: list[bytes] = []
    size = 0
    try:
        while size < _MOST:
            try:
                part = os.read(file, _READ)
            except BlockingIOError:
                break
            except BrokenPipeError:  # a record was overwritten before it was read; the next read goes on
                continue
            if not part:
                break
            parts.append(part)
            size += len(part)
    finally:
        os.close(file)
    text = b"".join(parts).decode(errors="replace")
    return [
        Line(booted + timedelta(microseconds=int(match[1])) if booted else None, match[2])
        for line in text.splitlines()
        if (match := _RECORD.match(line))
    ]


def _boot_time(root: Path) -> datetime | None:
    try:
        match = re.search(r"^btime (\d+)$", (root / "proc/stat").read_text(), re.MULTILINE)
    except OSError:
        return None
    return datetime.fromtimestamp(int(match[1]), UTC) if match else None


def _lines(output: str) -> list[Line]:
    lines = []
    for line in output.splitlines():
        dated = _DATED.match(line)
        at, text = (_time(dated[1]), dated[2]) if dated else (None, line)
        lines.append(Line(at, _PROGRAM.sub("", text, count=1) if _PROGRAM.match(text) else text))
    return lines


def _time(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        return None
    return at if at.tzinfo else at.astimezone()


def _after(lines: list[Line], start: datetime | None) -> tuple[Line, ...]:
    """Return the lines since `start`, and those without a time."""
    return tuple(line for line in lines if start is None or line.at is None or line.at >= start)


def uptime(root: Path = Path("/")) -> float | None:
    """Return the seconds since boot."""
    if root == Path("/") and hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        return float((root / "proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
