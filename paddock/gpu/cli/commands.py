"""Commands that are no actions: export metrics, run a workflow."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


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
    path: Path, *, dry_run: bool = False, fresh: bool = False, journal: Path | None = None, as_json: bool = False
) -> int:
    """Run it; 0, 1 for a step that failed, 130 for a run that was interrupted. Raises GpuError and GpuInputError."""
    from paddock.gpu.workflow import engine
    from paddock.gpu.workflow.model import load
    from paddock.gpu.workflow.progress import watching

    definition = load(path)
    if dry_run:
        document = engine.plan(definition, journal=journal, fresh=fresh)
        sys.stdout.write(json.dumps(document, indent=2) + "\n" if as_json else _plan(document))
        return 0
    with watching(definition) as watch:
        document = engine.run(definition, journal=journal, fresh=fresh, watch=watch)
    sys.stdout.write(json.dumps(document, indent=2) + "\n" if as_json else _outcome(document))
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
