"""`serve.unload`: end an instance, and return once its devices are free."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.console.command import command
from paddock.console.parameters import Parameters, parameter
from paddock.console.report import Report
from paddock.serve.commands.connection import connected
from paddock.serve.errors import ServeError, ServeInputError

_LOOK_S = 0.3
_PATIENCE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Unload(Parameters):
    """Parameters of `serve.unload`."""

    id: str = parameter(..., "the instance, as serve.models shows it")


@dataclass(frozen=True, kw_only=True)
class Unloaded(Report):
    """The instance that was unloaded, as serve.models showed it last."""

    SCHEMA = 1
    row: dict[str, Any]

    def text(self) -> Iterator[str]:
        yield f"unloaded {self.row['id']}"

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, **self.row, "ended": True}


@command(checks_values_first=True)
def unload(parameters: Unload) -> Unloaded:
    """Unload a model. Raises ServeError where it has not ended within a minute, ServeInputError for an unknown id."""
    with connected() as (_, scheduler):
        row = scheduler("unload", parameters.id)
        if row is None:
            names = ", ".join(model["id"] for model in scheduler("models")) or "nothing is loaded"
            raise ServeInputError(f"no instance is called {parameters.id!r}\n    expected: {names}")
        deadline = time.monotonic() + _PATIENCE_S
        while any(model["id"] == parameters.id for model in scheduler("models")):
            if time.monotonic() > deadline:
                raise ServeError(
                    f"the replica of {row['id']} has not ended within {_PATIENCE_S:g} s\n    fix: see serve.models,"
                    f" and end its process on {', '.join(row['devices'])}"
                )
            time.sleep(_LOOK_S)
    return Unloaded(row=row)
