"""Actions of IAM: facts, in `actions.json` for each type of resource, in `commands.json` for each command of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

_LISTS = ("actions", "anywhere", "arns", "service_roles")
FILE = Path(__file__).with_name("actions.json")


@dataclass(frozen=True, slots=True)
class Row:
    """Actions of one resource type, of one look-up, or of one command. The notes of the file say what each list is."""

    type: str
    actions: tuple[str, ...]
    anywhere: tuple[str, ...]
    arns: tuple[str, ...]
    service_roles: tuple[str, ...]

    @property
    def both(self) -> tuple[str, ...]:
        """Return every action."""
        return self.actions + self.anywhere


@cache
def document() -> Mapping[str, Any]:
    """Return the file with its date, notes and sources."""
    content: dict[str, Any] = json.loads(FILE.read_bytes())
    return content


@cache
def rows() -> Mapping[str, Row]:
    """Return the rows by type."""
    return MappingProxyType({row.type: row for row in _rows(document())})


@cache
def commands() -> Mapping[str, Any]:
    """Return the file of the commands, as `document`."""
    content: dict[str, Any] = json.loads(FILE.with_name("commands.json").read_bytes())
    return content


@cache
def of_commands() -> tuple[Row, ...]:
    """Return the rows of commands, whose type is the command's name; one may have several."""
    return tuple(_rows(commands()))


def _rows(content: Mapping[str, Any]) -> Iterator[Row]:
    for row in content["rows"]:
        yield Row(row["type"], *(tuple(row[key]) for key in _LISTS))
