"""Processes of the lab that run a module of this package: starting, repeating, logging and ending them."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from paddock.kubernetes.errors import KubernetesError
from paddock.lab.control_plane import servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabError
from paddock.process import sigterm_as_interrupt


def start(lab: Lab, name: str, module: str, *words: str) -> None:
    """Start `python -m module words...` as the lab's process of that name; a running one is ended first."""
    # -P: modules in the current folder are not imported.
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
    """Run `step` for ever. An error is logged once, and the step is tried again."""
    last_error = ""
    while True:
        try:
            step()
            last_error = ""
        except (LabError, KubernetesError, OSError, ValueError) as error:
            if str(error) != last_error:
                log(last_error := str(error))
        wait()


def log(text: str) -> None:
    """Write a line to the process's log."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def run_until_terminated(main: Callable[[], None]) -> None:
    """Run `main` until SIGTERM or Ctrl-C, and end without a traceback."""
    with contextlib.suppress(KeyboardInterrupt), sigterm_as_interrupt():
        main()
