"""Something that a plan says about a fleet, and the form of its id: three letters and three digits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

Severity = Literal["error", "warning", "info"]

_OLD_RULE = re.compile(r"(PAD|CON|SUP)-(\d\d)")
_OLD_IDS = {"COST001": "CST001"}


@dataclass(frozen=True, slots=True)
class Finding:
    """`subject` is a key of the stack file (`runners.gpu`); `fix` is the edit or command that ends it, or empty."""

    id: str
    severity: Severity
    subject: str
    message: str
    fix: str = ""

    # The document's model reads a saved finding, which is an object of JSON and no instance of this class.
    __pydantic_config__: ClassVar[dict[str, bool]] = {"strict": False}


@dataclass(frozen=True, slots=True)
class FindingKind:
    """Entry of the registry in `paddock.plan.findings`. `severity` names each one that the finding can have."""

    id: str
    severity: str
    title: str
    where: str
    """Module that reports it."""


def current_id(id_: str) -> str:
    """Return the id that a finding has today: older versions wrote `PAD-08` for PAD008."""
    if old := _OLD_RULE.fullmatch(id_):
        return f"{old[1]}0{old[2]}"
    return _OLD_IDS.get(id_, id_)
