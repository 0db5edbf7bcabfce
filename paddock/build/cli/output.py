"""How a command of this room speaks, in JSON when asked and of its progress, and how it ends."""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from paddock.build.docker import Progress
from paddock.build.errors import BuildInputError

_Given = ParamSpec("_Given")
_Back = TypeVar("_Back")


def told(command: Callable[_Given, _Back]) -> Callable[_Given, _Back]:
    """With `as_json` what fails is JSON too, beside the sentence that a user reads.

    `{"error": ...}`, with what stands in the error's own `document` if it has one. SIGTERM, with which CI systems
    cancel a job, is Ctrl-C: the engine is told, and no login stays behind.
    """

    @functools.wraps(command)
    def run(*given: _Given.args, **named: _Given.kwargs) -> _Back:
        try:
            with _terminated_as_interrupted():
                return command(*given, **named)
        except Exception as error:
            if named.get("as_json") and not isinstance(error, OSError):
                print_json({"error": str(error), **getattr(error, "document", {})})
            raise

    return run


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
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


def progress_of(wanted: str, as_json: bool) -> Progress:
    """How a build shows its steps; not at all beside JSON. Raises BuildInputError."""
    match wanted:
        case "auto" | "plain" | "quiet":
            return "quiet" if as_json else wanted
        case _:
            raise BuildInputError(
                f"--progress {wanted} is not known\n    expected: auto, plain or quiet\n    fix: leave it out"
            )


def print_json(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
