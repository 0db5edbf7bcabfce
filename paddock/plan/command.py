"""What `inv plan` does, without Invoke: read, plan, print, write."""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

from paddock.fleet import load
from paddock.plan import report
from paddock.plan.plan import document, make


class OutputError(Exception):
    """A file that the plan was to be written to cannot be."""

    exit_code = 2


def run(root: Path, stack: str, *, json_path: Path | None, everything: bool) -> int:
    """Plans `stack` and returns the number of errors found. `json_path` of `-` prints the document and nothing else."""
    plan = make(load(root, stack), date.today())
    if json_path is not None:
        text = json.dumps(document(plan), indent=2)
        if json_path.name == "-":
            sys.stdout.write(f"{text}\n")
            return plan.errors
        write(json_path, f"{text}\n")
    report.show(plan, report.console(), everything=everything)
    return plan.errors


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all. Raises OutputError."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True) if part.parent.is_dir() else None
        raise OutputError(f"cannot write {path}: {error.strerror}\n    fix: choose a file in a folder that exists and is yours") from None
