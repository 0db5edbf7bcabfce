"""Reports: what a command returns, printed as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class Report:
    """Base of what commands return: the fields are the document, `text` is for people.

    pydantic reads and describes a report for JSON alone, so a command whose start must be short writes `document`
    itself.
    """

    SCHEMA: ClassVar[str | int]
    """Name and number of the document's form: `paddock.status/2`, or the number alone."""

    def text(self) -> Iterable[str]:
        """Yield the lines for people; none where the command has printed them as it went."""
        return ()

    def notes(self) -> Iterable[str]:
        """Yield the lines for standard error, next to the text."""
        return ()

    @property
    def exit_code(self) -> int:
        return 0

    def document(self) -> dict[str, Any]:
        """Return the document that `--json` writes."""
        return {"schema": self.SCHEMA, **_adapter(type(self)).dump_python(self, mode="json")}


def _adapter(kind: type[Report]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
