"""One worker process: its JSON document, or the reason why there is none."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from paddock.smoke.errors import SmokeInputError

_PACKAGE = Path(__file__).parents[3]
"""The folder that holds `paddock`. It comes last for another interpreter, whose own packages are the right ones."""
_START = (
    f"import sys; sys.path.append({str(_PACKAGE)!r}); "
    "from paddock.smoke.workers.__main__ import main; main(*sys.argv[1:])"
)
_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
_KILLED_WITHIN = 2.0
"""Seconds within which a killed process ends, unless it hangs inside the kernel."""
_TEXT = 400
"""Characters of a worker's last words that an error shows."""


class Workers:
    """The workers that run now; `stop` ends them all, from any thread."""

    def __init__(self, program: Sequence[str]) -> None:
        self._program = program
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def run(
        self, name: str, parameters: Mapping[str, Any], environ: Mapping[str, str], seconds: float
    ) -> dict[str, Any]:
        """Return the document of the worker `name`, or one with `error`; `hangs` is true where it took too long."""
        command = [*self._program, name, json.dumps(parameters)]
        with self._lock:
            if self._stopped.is_set():
                return {"error": "interrupted", "interrupted": True}
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=dict(environ),
                start_new_session=True,
            )
            self._running.add(process)
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"error": _kill(process, seconds), "hangs": True}
        finally:
            with self._lock:
                self._running.discard(process)
        if self._stopped.is_set():
            return {"error": "interrupted", "interrupted": True}
        return _document(process.returncode, output, errors)

    def stop(self) -> None:
        """Kill all workers, and start no further ones."""
        with self._lock:
            self._stopped.set()
            for process in self._running:
                _signal(process)


def torch_workers(python: str = "") -> Workers | None:
    """Return workers of the interpreter that has torch, by default of this one; None where it has none.

    Raises SmokeInputError where there is no such interpreter.
    """
    if not python:
        return Workers((sys.executable, "-c", _START)) if find_spec("torch") else None
    try:
        checked = subprocess.run([python, "-c", _HAS_TORCH], capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SmokeInputError(
            f"--python: cannot run {python}: {error}\n    expected: a Python interpreter that has torch"
        ) from None
    return Workers((python, "-c", _START)) if checked.returncode == 0 else None


def _document(code: int, output: str, errors: str) -> dict[str, Any]:
    lines = output.strip().splitlines()
    with contextlib.suppress(ValueError, IndexError):
        document = json.loads(lines[-1])
        if isinstance(document, dict):
            return document
    if code < 0:
        return {"error": f"the test program was ended by {signal.Signals(-code).name}"}
    last = (errors.strip().splitlines() or ["it printed nothing"])[-1]
    return {"error": f"the test program failed ({code}): {last[:_TEXT]}"}


def _kill(process: subprocess.Popen[str], seconds: float) -> str:
    """Kill the process and its children; one that hangs in the kernel is left behind."""
    _signal(process)
    try:
        process.communicate(timeout=_KILLED_WITHIN)
    except subprocess.TimeoutExpired:
        return f"no result within {seconds:g} s, and the program cannot be killed: the driver hangs"
    return f"no result within {seconds:g} s"


def _signal(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
