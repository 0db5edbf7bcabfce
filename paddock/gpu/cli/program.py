"""GPUs on the console: an action from flags to text or JSON and an exit code, the metrics, and a workflow."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.errors import printable
from paddock.gpu.actions.handlers import Call, Document, refusal
from paddock.gpu.actions.parameters import Run
from paddock.gpu.actions.registry import Action
from paddock.gpu.errors import GpuInputError, NoGpu
from paddock.gpu.model import SCHEMA
from paddock.terminal import NO_JSON, JsonOutput


def perform(
    action: Action, flags: Mapping[str, Any], *, source: Path | None, json: JsonOutput, command: Sequence[str] = ()
) -> int:
    """Perform an action and print its result. Raises GpuError.

    `flags` are values by name of parameter; `source` is a saved inventory, `command` the program of `run`.
    """
    parameters = action.parameters.from_flags(flags)
    if isinstance(parameters, Run):
        parameters = replace(parameters, command=tuple(command))
    with _named_flags(action), _refusals(action, json):
        if action.name == "monitor":
            from paddock.gpu.cli.monitor import stream

            return stream(parameters, json=json)
        result = action.handler(parameters, Call(source, console=True, as_json=json.path is not None))
    notes = [f"wrote {path}" for path in result.written]
    write_json(json, result.document)
    if not json.replaces_text:
        sys.stdout.writelines(f"{printable(line)}\n" for line in result.text())
        notes = [*result.notes, *notes]
    sys.stderr.writelines(f"{printable(note)}\n" for note in notes)
    return result.exit_code


@contextmanager
def _named_flags(action: Action) -> Iterator[None]:
    """Let an error name the flag of a parameter: nobody who typed `--gpus 0` has written a `count`."""
    try:
        yield
    except GpuInputError as error:
        names = {name: flag.name for name, _, flag in action.parameters.flags()}
        if error.parameter in names:
            raise error.named(f"--{names[error.parameter]}") from None
        raise


def write_json(json: JsonOutput, document: Document) -> None:
    json.write({"schema": SCHEMA, **document})


@contextmanager
def _refusals(action: Action, json: JsonOutput) -> Iterator[None]:
    """Print the refusal of a GPU for those who read JSON, and let the error go on."""
    try:
        yield
    except NoGpu as error:
        write_json(json, refusal(action.name, error))
        raise


def export(*, file: Path | None, host: str, port: int) -> None:
    """Write the metrics to a file for node_exporter, or serve them until Ctrl-C. Raises GpuInputError."""
    from paddock.gpu.monitoring.prometheus import Exporter, Server, write

    if file is not None:
        write(file, Exporter().text())
        return
    with Server(Exporter(), host, port) as server, suppress(KeyboardInterrupt):
        sys.stderr.write(f"metrics at {server.url}; Ctrl-C ends it\n")
        server.serve_forever()


def workflow(
    path: Path, *, dry_run: bool = False, fresh: bool = False, journal: Path | None = None, json: JsonOutput = NO_JSON
) -> int:
    """Run it; 0, 1 for a step that failed, 130 for a run that was interrupted. Raises GpuError and GpuInputError."""
    from paddock.gpu.workflow import engine
    from paddock.gpu.workflow.model import load
    from paddock.gpu.workflow.progress import watching

    definition = load(path)
    if dry_run:
        document = engine.plan(definition, journal=journal, fresh=fresh)
        json.write(document)
        sys.stdout.write("" if json.replaces_text else _plan(document))
        return 0
    with watching(definition) as watch:
        document = engine.run(definition, journal=journal, fresh=fresh, watch=watch)
    json.write(document)
    sys.stdout.write("" if json.replaces_text else _outcome(document))
    return engine.exit_code(document)


def _plan(document: dict[str, Any]) -> str:
    lines = [f"{document['name']} ({document['workflow']}), journal {document['journal']}"]
    for number, wave in enumerate(document["waves"], 1):
        for step in wave:
            suffix = " (done already)" if step["reused"] else ""
            after = f", after {', '.join(step['depends_on'])}" if step["depends_on"] else ""
            lines.append(f"{number}. {step['id']}{suffix}{after}: {step['would']}")
    return "\n".join(lines) + "\n"


def _outcome(document: dict[str, Any]) -> str:
    lines = [f"{document['workflow']}: {document['outcome']}"]
    for step in document["steps"]:
        reason = f": {step['error']}" if step["error"] else ""
        lines.append(f"{step['outcome']:<11} {step['id']} ({step['seconds']:.1f} s){reason}")
    return "\n".join(lines) + "\n"
