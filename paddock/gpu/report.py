"""Reports whose documents other rooms made: a node writes them without pydantic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddock.console.report import Report
from paddock.gpu import serialization


@dataclass(frozen=True, kw_only=True)
class DocumentReport(Report):
    """Report of a document that is one already, with its schema."""

    SCHEMA = 1
    found: dict[str, Any]

    def document(self) -> dict[str, Any]:
        return self.found


@dataclass(frozen=True, kw_only=True)
class ValueReport(Report):
    """Report of an object of the model, which has the schema as a field."""

    SCHEMA = 1
    value: Any

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = serialization.data(self.value)
        return document
