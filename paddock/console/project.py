"""The project that a command is about: its folder, and the stack."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from paddock.console.parameters import Parameters, parameter


def root() -> Path:
    """Return the project's folder: where the stack files and the Pulumi program are."""
    return Path(os.environ.get("PADDOCK_ROOT", ".")).resolve()


@dataclass(frozen=True, kw_only=True)
class OfStack(Parameters):
    """Parameters of a command about a stack."""

    stack: str = parameter("dev", "the stack: Pulumi.<stack>.yaml")
