"""Power or clock cap of an NVIDIA GPU for the time of a block, where the driver allows it (as a rule, to root)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from paddock.bench.modes.policy import GpuCap

_PACKAGE = Path(__file__).parents[3]
_START = (
    f"import sys; sys.path.append({str(_PACKAGE)!r}); "
    "from paddock.bench.modes.guard import main; sys.exit(main(*sys.argv[1:]))"
)
_ENDS_WITHIN = 10.0
"""Seconds within which the guard restores the limit."""


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
    folder = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "paddock" / "bench"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    power, clock = (cap.power_watts or 0) * 1000, cap.clock_mhz or 0
    command = [sys.executable, "-c", _START, uuid, str(power), str(clock), str(folder)]
    guard = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(environ),
        start_new_session=True,  # what ends this process's group must not end the one that cleans up after it
    )
    try:
        yield _answer(guard.stdout.readline() if guard.stdout else "")
    finally:
        # A driver that hangs keeps the guard; it restores the limit once it answers.
        with suppress(subprocess.TimeoutExpired):
            guard.communicate(timeout=_ENDS_WITHIN)


def _answer(line: str) -> Applied:
    try:
        document = json.loads(line)
    except ValueError:
        return Applied(False, "the guard of the cap ended without a word")
    if error := document.get("error"):
        return Applied(False, error)
    return Applied(True, before_watts=document["before_mw"] / 1000 or None)
