"""One thing the plan has to say about a fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`subject` is a key of the stack file (`runners.gpu`); `fix` is the edit or command that ends it, or empty."""

    id: str
    severity: Severity
    subject: str
    message: str
    fix: str = ""

    __pydantic_config__: ClassVar[dict[str, bool]] = {
        "strict": False
    }  # a saved finding is an object, not an instance of this class
