"""One action on GPUs on the console: from flags to text or JSON, and an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.gpu.actions.handlers import Call, Document, refusal
from paddock.gpu.actions.parameters import Run
from paddock.gpu.actions.registry import Action
from paddock.gpu.errors import NoGpu
from paddock.gpu.model import SCHEMA


def perform(
    action: Action, flags: Mapping[str, Any], *, source: Path | None, as_json: bool, command: Sequence[str] = ()
) -> int:
    """Perform an action and print its result. Raises GpuError.

    `flags` are values by name of parameter; `source` is a saved inventory, `command` the program of `run`.
    """
    parameters = action.parameters.from_flags(flags)
    if isinstance(parameters, Run):
        parameters = replace(parameters, command=tuple(command))
    with _refusals(action, as_json):
        if action.name == "monitor":
            from paddock.gpu.cli.monitor import stream

            return stream(parameters, as_json=as_json)
        result = action.handler(parameters, Call(source, console=True, as_json=as_json))
    notes = [f"wrote {path}" for path in result.written]
    if as_json:
        write_json(result.document)
    else:
        sys.stdout.writelines(f"{line}\n" for line in result.text())
        notes = [*result.notes, *notes]
    sys.stderr.writelines(f"{note}\n" for note in notes)
    return result.exit_code


def write_json(document: Document) -> None:
    sys.stdout.write(f"{json.dumps({'schema': SCHEMA, **document}, indent=2)}\n")


@contextmanager
def _refusals(action: Action, as_json: bool) -> Iterator[None]:
    """Print the refusal of a GPU for those who read JSON, and let the error go on."""
    try:
        yield
    except NoGpu as error:
        if as_json:
            write_json(refusal(action.name, error))
        raise
