"""Messages of other programs (Docker, registries, apt, compilers, Image Builder, Pulumi), and what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_UNSAID = "of that name"


@dataclass(frozen=True, slots=True)
class Row:
    """One message of the file. The texts may use the pattern's groups, and what the caller knows, in braces."""

    id: str
    said: frozenset[str]
    """Places of the message: engine, registry, build (outside the Dockerfile's commands), step (by one of them),
    image-builder, pulumi."""
    pattern: re.Pattern[str]
    cause: str
    expected: str
    fix: str
    source: str
    as_of: str
    """Day of the table."""
    input: bool
    """True where the request or this machine is to be changed, and not the world."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A message by what it is."""

    row: Row
    cause: str
    expected: str
    fix: str
    line: str
    """The line, or lines, that said it, whole."""

    @property
    def hint(self) -> str:
        """Return cause and fix on lines of their own, each begun with a line break."""
        return f"\n    {self.cause}\n    fix: {self.fix}"


def explain(said: str, output: str, **known: str) -> Explanation | None:
    """Return the meaning of the first row whose pattern the output has, in the order of the file; None of no row.

    `said`: its place, as in `Row.said`. `known` are values for the texts, such as the registry.
    """
    for row in rows():
        if said in row.said and (match := row.pattern.search(output)):
            return _explained(row, match, output, known)
    return None


@cache
def rows() -> tuple[Row, ...]:
    """Return every row, in order: the first that matches counts."""
    import yaml

    file = Path(__file__).with_name("messages.yaml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(file.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - a safe one, in C
    day = entries.pop("as_of")
    return tuple(_row(id_, day, **entry) for id_, entry in entries.items())


def _row(id_: str, day: str, *, said: list[str], pattern: str, input: bool = False, **texts: Any) -> Row:
    compiled = re.compile(pattern, re.MULTILINE)
    return Row(id_, frozenset(said), compiled, as_of=str(texts.pop("as_of", day)), input=input, **texts)


def _explained(row: Row, match: re.Match[str], output: str, known: Mapping[str, str]) -> Explanation:
    groups = {name.rstrip("0123456789"): value for name, value in match.groupdict().items() if value}
    values = {**groups, **{name: value for name, value in known.items() if value}}
    start, end = output.rfind("\n", 0, match.start()) + 1, output.find("\n", match.end())
    line = output[start : end if end >= 0 else len(output)].strip()
    cause, expected, fix = (_fill(text, values) for text in (row.cause, row.expected, row.fix))
    return Explanation(row, cause, expected, fix, line)


def _fill(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda place: values.get(place[1], _UNSAID), text)
