"""How a command of this room speaks: in JSON when asked, and of its progress."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from paddock.build.docker import Progress
from paddock.build.errors import BuildInputError

_Given = ParamSpec("_Given")
_Back = TypeVar("_Back")


def told(command: Callable[_Given, _Back]) -> Callable[_Given, _Back]:
    """With `as_json` what fails is JSON too, beside the sentence that a user reads.

    `{"error": ...}`, with what stands in the error's own `document` if it has one.
    """

    @functools.wraps(command)
    def run(*given: _Given.args, **named: _Given.kwargs) -> _Back:
        try:
            return command(*given, **named)
        except Exception as error:
            if named.get("as_json") and not isinstance(error, OSError):
                print_json({"error": str(error), **getattr(error, "document", {})})
            raise

    return run


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
