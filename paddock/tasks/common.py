"""The task decorator, and paths as the user meant them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from invoke import tasks
from invoke.exceptions import Exit

# One letter a flag would make `plan -h` mean --html, and move with every flag that is added.
task = partial(tasks.task, auto_shortflags=False)

ROOT = Path(os.environ.get("PADDOCK_ROOT", ".")).resolve()
"""The project: where the stack files and the Pulumi program are."""


def caller_path(path: str) -> Path:
    """Return a path as the user meant it: relative to where `./inv` was called, not to the project."""
    return Path(os.environ.get("PADDOCK_CWD", "."), path)


def optional_path(flag: str, path: str | None) -> Path | None:
    """`caller_path` of a flag that may be left out. An empty value is a variable that nobody set, and no wish."""
    if path == "":
        raise Exit(
            f"--{flag} is empty\n    expected: the name of a file\n    fix: name one, or leave --{flag} out", code=2
        )
    return None if path is None else caller_path(path)
