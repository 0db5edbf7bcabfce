"""Power or clock cap of an NVIDIA GPU for the time of a block, where the driver allows it (as a rule, to root)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paddock.children import start_of
from paddock.modes.guard import record_of
from paddock.modes.policy import GpuCap

_START = start_of("paddock.modes.guard", "sys.exit(main(*sys.argv[1:]))")
_ENDS_WITHIN = 10.0
"""Seconds within which the guard restores the limit."""
ANSWERS_WITHIN = 30.0
"""Seconds within which the driver has set a cap or refused it."""
_SILENT = f"the driver did not answer within {ANSWERS_WITHIN:g} s"


@dataclass(frozen=True, slots=True)
class Applied:
    """A cap that holds, or the reason why it does not. `before_watts` is given back at the end."""

    applied: bool
    reason: str = ""
    before_watts: float | None = None


@contextmanager
def capped(uuid: str, cap: GpuCap, environ: Mapping[str, str] = os.environ) -> Iterator[Applied]:
    """Cap a GPU inside the block. A guard process restores it, also where this process is killed.

    A locked clock has no value that could be read before, so giving it back ends any lock.
    """
    if cap.power_watts is None and cap.clock_mhz is None:
        yield Applied(False, "no cap is set")
        return
    folder = _folder(environ)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    power, clock = (cap.power_watts or 0) * 1000, cap.clock_mhz or 0
    guard = subprocess.Popen(
        _command(uuid, power, clock, folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(environ),
        start_new_session=True,  # what ends this process's group must not end the one that cleans up after it
    )
    try:
        yield _answer(_first_line(guard))
    finally:
        try:
            guard.communicate(timeout=_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            # A driver that hangs keeps the guard; it restores the limit once it answers.
            if guard.stdout is not None:
                guard.stdout.close()
            threading.Thread(target=guard.wait, daemon=True).start()


def recover(uuids: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Give back what killed guards changed of these GPUs, and return a sentence for each."""
    folder, notes = _folder(environ), []
    for uuid in uuids:
        if not record_of(folder, uuid).exists():
            continue
        command = _command(uuid, 0, 0, folder)
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=dict(environ),
                timeout=ANSWERS_WITHIN,
                check=False,
            )
            answer = _answer(done.stdout)
        except subprocess.TimeoutExpired:
            answer = Applied(False, _SILENT)
        outcome = "were given back" if answer.applied else f"could not be given back: {answer.reason}"
        notes.append(f"limits of {uuid} that an earlier benchmark had changed {outcome}")
    return notes


def _folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "paddock" / "bench"


def _command(uuid: str, power_mw: int, clock_mhz: int, folder: Path) -> list[str]:
    return [sys.executable, "-c", _START, uuid, str(power_mw), str(clock_mhz), str(folder)]


def _first_line(guard: subprocess.Popen[str]) -> str | None:
    """Return the guard's answer; None where it has none in time: the driver hangs."""
    if guard.stdout is None or not select.select([guard.stdout], [], [], ANSWERS_WITHIN)[0]:
        return None
    return guard.stdout.readline()


def _answer(line: str | None) -> Applied:
    if line is None:
        return Applied(False, _SILENT)
    try:
        document = json.loads(line)
    except ValueError:
        return Applied(False, "the guard of the cap ended without a message")
    if error := document.get("error"):
        return Applied(False, error)
    return Applied(True, before_watts=document["before_mw"] / 1000 or None)
