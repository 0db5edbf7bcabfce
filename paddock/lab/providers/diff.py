"""Changes between two declarations of a resource, and those that replace it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paddock.lab.providers.wire import unwrap_secrets
from paddock.plan.diff import replacement

DEFAULTS = "__defaults"
"""Key under which a provider keeps the names of inputs that it filled in itself, as Pulumi's bridge does."""
Kind = Literal["add", "delete", "update"]


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs."""

    path: tuple[str, ...]
    kind: Kind
    replaces: bool


def changes(type_: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Fields that differ, sorted; lists differ as a whole."""
    without = ({key: value for key, value in side.items() if not key.startswith("__")} for side in (old, new))
    differences = _walk((), *map(unwrap_secrets, without))
    return [Change(path, kind, replacement.effect(type_, path) == "replace") for path, kind in differences]


def deletes_first(declared: Mapping[str, Any], changes: list[Change]) -> bool:
    """Return whether the old resource must be deleted before the new one is created: both would have a chosen name."""
    if not any(change.replaces for change in changes):
        return False
    chosen = {"name", "metadata"} - set(declared.get(DEFAULTS, ()))
    fixed = {key for key in chosen if _name(declared.get(key))}
    return bool(fixed) and not any(change.replaces and change.path[0] == "name" for change in changes)


def _name(value: Any) -> bool:
    return bool(value.get("name")) if isinstance(value, Mapping) else bool(value)


_ABSENT = object()


def _walk(path: tuple[str, ...], old: Any, new: Any) -> Iterator[tuple[tuple[str, ...], Kind]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _walk((*path, key), old.get(key, _ABSENT), new.get(key, _ABSENT))
    elif old is _ABSENT or old is None:
        if isinstance(new, Mapping) and new:
            yield from _walk(path, {}, new)
        elif new is not None and new is not _ABSENT:
            yield path, "add"
    elif new is _ABSENT or new is None:
        if isinstance(old, Mapping) and old:
            yield from _walk(path, old, {})
        else:
            yield path, "delete"
    elif old != new:
        yield path, "update"
