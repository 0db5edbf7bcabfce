"""Limits of AWS and of what runs on it, each with its source and the day on which it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from paddock.catalog import _data

FILE = "limits.json"


@dataclass(frozen=True, slots=True)
class Limit:
    """`value` in `unit` is the most (of a prefix length: the largest or smallest) that there may be.

    `model` is the shape in AWS's own API models that states the same, None where none does.
    """

    key: str
    value: int
    unit: str
    what: str
    adjustable: bool
    model: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Rule:
    """Refusal of AWS that is not a number."""

    key: str
    what: str
    source: str


class Reading(NamedTuple):
    """A limit or a rule with the source that states it."""

    row: Limit | Rule
    source: _data.Source


@cache
def limits() -> Mapping[str, Limit]:
    """Every limit by key (``"eks.public-access-networks"``)."""
    return _data.keyed(Limit, "key", FILE)


def limit(key: str) -> int:
    """The value of a limit. Raises KeyError for a key that is not there."""
    return limits()[key].value


def readings() -> tuple[Reading, ...]:
    """Every limit, then every rule, with its source."""
    stamp = next(stamp for stamp in _data.stamps() if stamp.file == FILE)
    sources = {source.key: source for source in stamp.sources}
    rows: list[Limit | Rule] = [*limits().values(), *_data.records(Rule, FILE, "rules")]
    return tuple(Reading(row, sources[row.source]) for row in rows)
