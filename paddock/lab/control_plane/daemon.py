"""Processes of the lab that are modules of ours: how they are started, go on, and end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from paddock.lab.control_plane import servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabError


def start(lab: Lab, name: str, module: str, *words: str) -> None:
    """Starts `python -m module words...` as the lab's process of that name; one that runs is ended first."""
    # -P: the folder that it is started in is nobody's package.
    command = [sys.executable, "-P", "-m", module, *words]
    environment = {
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        "PYTHONUNBUFFERED": "1",
        "PATH": os.environ.get("PATH", os.defpath),
    }
    servers.spawn(lab.folder, name, command, environment)


def is_running(lab: Lab, name: str) -> bool:
    return name in servers.status(lab.folder).running


def repeat(step: Callable[[], None], wait: Callable[[], object]) -> None:
    """Goes on for ever; what keeps a step from being done is said once and tried again."""
    complained = ""
    while True:
        try:
            step()
            complained = ""
        except (LabError, OSError, ValueError) as error:
            if str(error) != complained:
                log(complained := str(error))
        wait()


def log(text: str) -> None:
    """A line of the process's log."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def run_until_terminated(main: Callable[[], None]) -> None:
    """Runs `main` until the process is told to end, and ends quietly."""
    signal.signal(signal.SIGTERM, _end)
    with contextlib.suppress(KeyboardInterrupt):
        main()


def _end(_signal: int, _frame: object) -> None:
    raise SystemExit(0)
