"""Values of a plan that are not plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNKNOWN = "<unknown>"
"""Known only once the cloud has made the thing it comes from."""
SECRET = "<secret>"  # noqa: S105 - shown in place of one


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that Pulumi keeps encrypted. It is never printed."""

    value: Any

    def __repr__(self) -> str:
        return SECRET


@dataclass(frozen=True, slots=True)
class Ref:
    """Another resource, passed whole."""

    urn: str


def redact(value: Any) -> Any:
    """Plain data for people and JSON: secrets hidden, references as URNs."""
    match value:
        case Secret():
            return SECRET
        case Ref(urn=urn):
            return urn
        case Mapping():
            return {key: redact(item) for key, item in value.items()}
        case list() | tuple():
            return [redact(item) for item in value]
        case _:
            return value


def shallow(value: Any, deepest: int) -> bool:
    """Return whether lists and maps are nested at most `deepest` levels."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > deepest:
            return False
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
        ]
    return True
