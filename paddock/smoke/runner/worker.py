"""One worker process: its JSON document, or the reason why there is none."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from paddock.children import Child, Children, Stopped, document, start_of
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.workers.device import LIBRARIES, Kind

LOADING = 120.0
"""Seconds within which a library has to be loaded, which several processes do at once, from a disk that may be slow."""
_START = start_of("paddock.smoke.workers.__main__")
_HAS = "import importlib.util, sys; sys.exit(importlib.util.find_spec({!r}) is None)"
_NOT_THE_GPUS = (signal.SIGKILL, signal.SIGTERM, signal.SIGILL, signal.SIGHUP)
"""Signals with which others end a program, or that a CPU too old for it causes."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a worker, and when its work on the device began, by the monotonic clock.

    In the document `error` says how the device failed, and `hangs` that it took too long; `unusable` that it could not
    be tested, and `fix` the remedy; `interrupted` that the workers were stopped.
    """

    document: Mapping[str, Any]
    began: float


class Workers:
    """Worker processes of one program, among the children that `children` can stop."""

    def __init__(self, program: Sequence[str], children: Children, loading: float = LOADING) -> None:
        self._program = program
        self._children = children
        self._loading = loading
        self._alone = threading.Lock()

    def run(
        self, name: str, parameters: Mapping[str, Any], environ: Mapping[str, str], seconds: float, *, alone: bool
    ) -> Answer:
        """Return the answer of the worker `name`. Only one worker at a time is `alone` with the host.

        `seconds` are for the device: neither loading its library nor waiting for others counts.
        """
        began = time.monotonic()
        try:
            with self._children.started([*self._program, name, json.dumps(parameters)], environ) as child:
                answer = self._answer(child, LIBRARIES[parameters["device"]], seconds, alone=alone)
        except Stopped:
            return Answer({"interrupted": True}, began)
        except OSError as error:
            return Answer(_unusable(f"the test program cannot be started: {error}", "give another --python"), began)
        return Answer({"interrupted": True}, began) if self._children.stopped else answer

    def _answer(self, child: Child, library: str, seconds: float, *, alone: bool) -> Answer:
        began = time.monotonic()
        try:
            first = self._first(child)
        except TimeoutError:
            reason = f"{library} was not loaded within {self._loading:g} s"
            return Answer(_unusable(reason, "run it again: by then the machine has it at hand"), began)
        if first is None:
            return Answer(_ended(child, started=False), began)
        if not first.get("ready"):
            return Answer(first, began)
        with self._alone if alone else contextlib.nullcontext():
            began = time.monotonic()
            child.send("go")
            try:
                documents = [found for line in child.lines(seconds) if (found := document(line))]
            except TimeoutError:
                hung = "" if child.kill() else ", and the program cannot be killed: the driver hangs"
                return Answer({"error": f"no result within {seconds:g} s{hung}", "hangs": True}, began)
        return Answer(documents[-1] if documents else _ended(child, started=True), began)

    def _first(self, child: Child) -> Document | None:
        return next((found for line in child.lines(self._loading) if (found := document(line))), None)


def program(kind: Kind, python: str = "") -> tuple[str, ...] | None:
    """Return the worker's command for an interpreter that has the library of such devices, by default this one.

    None where it does not have it.
    Raises SmokeInputError where the interpreter does not exist.
    """
    library = LIBRARIES[kind]
    if not python:
        return (sys.executable, "-c", _START) if find_spec(library) else None
    try:
        checked = subprocess.run([python, "-c", _HAS.format(library)], capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = "it did not end within a minute" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        raise SmokeInputError(
            f"--python: cannot run {python}: {reason}\n    expected: a Python interpreter that has {library}"
        ) from None
    return (python, "-c", _START) if checked.returncode == 0 else None


def _ended(child: Child, *, started: bool) -> Document:
    """Return why a worker ended without a document. What it did before it was ready says nothing of a device."""
    try:
        code = child.code()
    except TimeoutError:
        return {"error": "the test program closed its output and does not end", "hangs": True}
    if code >= 0:
        return _unusable(f"the test program failed ({code}): {child.last_words()}", "")
    name = _signal_name(-code)
    if started and -code not in _NOT_THE_GPUS:
        return {"error": f"the test program was ended by {name}"}
    memory = ", as the kernel ends programs when memory is short" if -code == signal.SIGKILL else ""
    fix = "a container may need a higher limit of memory" if memory else ""
    return _unusable(f"the test program was ended by {name}{memory}", fix)


def _unusable(reason: str, fix: str) -> Document:
    return {"unusable": reason, "fix": fix}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
