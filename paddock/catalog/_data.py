"""Read and write the catalogue's data files.

A file is one JSON object: ``schema``, ``as_of``, ``max_age_days``, ``notes``, ``sources`` and one or more tables, each
a list of objects. It is written with one row a line, so that a refresh reads as a diff of the rows that changed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from paddock.errors import PaddockError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEMA = 1
DATA = Path(__file__).parent / "data"

Row = dict[str, Any]
Document = dict[str, Any]
T = TypeVar("T")


class CatalogError(Exception):
    """A data file is missing or does not have the form described in this module."""


class UnknownName(PaddockError, KeyError):
    """A name that the catalogue does not hold; `suggestions` are its nearest names, best first."""

    kind = "name"
    exit_code = 2

    def __init__(self, name: str, names: Iterable[str]) -> None:
        import difflib  # only a wrong name pays for it

        super().__init__(name)
        self.name = name
        self.suggestions = tuple(difflib.get_close_matches(name, list(names), n=3, cutoff=0.5))

    def __str__(self) -> str:
        hint = f"; did you mean {', '.join(self.suggestions)}?" if self.suggestions else ""
        return f"unknown {self.kind} {self.name!r}{hint}"


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a value. ``key`` is what rows and columns cite; ``as_of`` is None for an undated source.

    ``state`` is ``open`` or ``closed`` where the source is an issue whose state was read.
    """

    key: str
    name: str
    url: str
    as_of: date | None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """Age of one data file: ``as_of`` is the day of its oldest regularly refreshed column."""

    file: str
    as_of: date
    max_age_days: int
    sources: tuple[Source, ...]

    def age_days(self, today: date) -> int:
        """Whole days between `as_of` and `today`."""
        return (today - self.as_of).days


def document(file: str, folder: Path = DATA) -> Document:
    """The parsed content of ``data/<file>``. Raises CatalogError: missing, no JSON, or of another schema number."""
    path = folder / file
    try:
        content: Document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CatalogError(f"{path}: cannot read the catalogue file: {error}") from error
    if content.get("schema") != SCHEMA:
        raise CatalogError(f"{path}: schema is {content.get('schema')!r}, this version of Paddock reads {SCHEMA}")
    return content


def rows(file: str, table: str = "rows") -> list[Row]:
    """The rows of one table of ``data/<file>``."""
    table_rows: list[Row] = document(file)[table]
    return table_rows


def records(kind: type[T], file: str, table: str = "rows") -> tuple[T, ...]:
    """The rows of a table as objects of a dataclass: lists as tuples, mappings read-only, its dates as dates."""
    dates = {field.name for field in fields(kind) if str(field.type).startswith("date")}  # type: ignore[arg-type]  # T is a dataclass
    return tuple(
        kind(**{name: as_date(value) if name in dates else _frozen(value) for name, value in row.items()})
        for row in rows(file, table)
    )


def keyed(kind: type[T], key: str, file: str, table: str = "rows") -> Mapping[Any, T]:
    """The same by one of their fields, in file order."""
    return MappingProxyType({getattr(record, key): record for record in records(kind, file, table)})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else MappingProxyType(value) if isinstance(value, dict) else value


def render(content: Document) -> str:
    """The text of a data file: two spaces of indent, one row of a table a line, a final newline."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            body = ",\n".join(f"    {_compact(row)}" for row in value)
            lines.append(f"  {_compact(key)}: [\n{body}\n  ]")
        else:
            lines.append(f"  {_compact(key)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write(file: str, content: Document, folder: Path = DATA) -> None:
    """Replace ``data/<file>`` in one step: a reader sees the old file or the new one, never a part of it."""
    temporary = folder / f".{file}.{os.getpid()}.tmp"
    try:
        temporary.write_text(render(content), encoding="utf-8")
        temporary.replace(folder / file)
    finally:
        temporary.unlink(missing_ok=True)


@cache
def stamps() -> tuple[Stamp, ...]:
    """The age and sources of every data file, in file-name order."""
    return tuple(_stamp(path.name) for path in sorted(DATA.glob("*.json")))


def stale(today: date, max_age_days: int | None = None) -> tuple[Stamp, ...]:
    """The files that are older on `today` than they may be.

    Each file carries its own limit (prices age faster than hardware); `max_age_days` overrides all of them.
    """
    return tuple(
        stamp
        for stamp in stamps()
        if today - stamp.as_of > timedelta(days=stamp.max_age_days if max_age_days is None else max_age_days)
    )


def as_date(text: str | None) -> date | None:
    """An ISO date, or None for null. ``2026-06`` (a source that names only the month) is its last day."""
    if text is None:
        return None
    if len(text) == len("2026-06"):
        year, month = (int(part) for part in text.split("-"))
        return date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)
    return date.fromisoformat(text)


@cache
def version(text: str) -> tuple[int, ...]:
    """A dotted version for comparison: as text ``570.26`` is above ``570.124.06``, as numbers it is below."""
    return tuple(int(part) for part in text.split("."))


def _stamp(file: str) -> Stamp:
    content = document(file)
    return Stamp(
        file=file,
        as_of=date.fromisoformat(content["as_of"]),
        max_age_days=content["max_age_days"],
        sources=tuple(Source(**source | {"as_of": as_date(source["as_of"])}) for source in content["sources"]),
    )


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
