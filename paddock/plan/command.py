"""What `inv plan` does, without Invoke: read, plan, print, write."""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

from paddock.fleet import load
from paddock.plan import report
from paddock.plan.plan import document, make
from paddock.terminal import console, write


def run(root: Path, stack: str, *, json_path: Path | None, everything: bool) -> int:
    """Plans `stack` and returns the number of errors found. `json_path` of `-` prints the document and nothing else."""
    plan = make(load(root, stack), date.today())
    if json_path is not None:
        text = json.dumps(document(plan), indent=2)
        if json_path.name == "-":
            sys.stdout.write(f"{text}\n")
            return plan.errors
        write(json_path, f"{text}\n")
    report.show(plan, console(), everything=everything)
    return plan.errors
