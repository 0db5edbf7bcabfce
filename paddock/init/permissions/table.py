"""Actions of IAM that making, changing, reading and deleting a type of resource takes: facts, in `actions.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

_LISTS = ("actions", "anywhere", "arns", "service_roles")
FILE = Path(__file__).with_name("actions.json")


@dataclass(frozen=True, slots=True)
class Row:
    """Actions of one resource type, or of one look-up. The notes of the file say what each list is."""

    type: str
    actions: tuple[str, ...]
    anywhere: tuple[str, ...]
    arns: tuple[str, ...]
    service_roles: tuple[str, ...]


@cache
def document() -> Mapping[str, Any]:
    """Return the file with its date, notes and sources."""
    content: dict[str, Any] = json.loads(FILE.read_bytes())
    return content


@cache
def rows() -> Mapping[str, Row]:
    """Return the rows by type."""
    return MappingProxyType(
        {row["type"]: Row(row["type"], *(tuple(row[key]) for key in _LISTS)) for row in document()["rows"]}
    )
