"""Tables of `messages.yaml`: what Slurm and Docker say, and what it means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def tables() -> Mapping[str, Any]:
    """Return all tables: `waiting` and `ends` by Slurm's word, and the rows of `logs` and `docker`."""
    import yaml

    loaded: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return loaded


def row(table: str, text: str) -> Mapping[str, str] | None:
    """Return the first row whose pattern is in a text, whatever its case."""
    return next((row for row in tables()[table] if re.search(row["pattern"], text, re.IGNORECASE)), None)
