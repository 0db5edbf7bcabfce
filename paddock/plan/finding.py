"""Something that a plan says about a fleet, and the form of its id: three letters and three digits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from paddock.fleet.errors import Key, dotted
from paddock.fleet.stackfile.configuration import FLEET
from paddock.fleet.stackfile.yaml_edit import render

Severity = Literal["error", "warning", "info"]

_OLD_RULE = re.compile(r"(PAD|CON|SUP)-(\d\d)")
_OLD_IDS = {"COST001": "CST001"}


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of the stack file: `value` at `key`, which begins below `config`; or, with `remove`, no such key."""

    key: Key
    value: Any = field(default=None, hash=False)
    remove: bool = False

    __pydantic_config__: ClassVar[dict[str, bool]] = {"strict": False}

    def __str__(self) -> str:
        name = dotted(self.key[1:] if self.key[0] == FLEET else self.key)
        return f"leave {name} out" if self.remove else f"{name}: {render(self.value)}"


def put(*key: str, value: Any) -> Edit:
    """Return the edit that sets a key of the fleet."""
    return Edit((FLEET, *key), value)


def drop(*key: str) -> Edit:
    """Return the edit that leaves a key of the fleet out."""
    return Edit((FLEET, *key), remove=True)


@dataclass(frozen=True, slots=True)
class Finding:
    """`subject` is a key of the stack file (`runners.gpu`); `fix` is the edit or command that ends it, or empty.

    `edits` are what `./inv plan --fix` does about it; empty where a person has to decide or to act.
    """

    id: str
    severity: Severity
    subject: str
    message: str
    fix: str = ""
    edits: tuple[Edit, ...] = ()

    # The document's model reads a saved finding, which is an object of JSON and no instance of this class.
    __pydantic_config__: ClassVar[dict[str, bool]] = {"strict": False}


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a person does once before `pulumi up`. `command` is what to run for it, or empty."""

    id: str
    subject: str
    text: str
    command: str = ""

    __pydantic_config__: ClassVar[dict[str, bool]] = {"strict": False}


@dataclass(frozen=True, slots=True)
class FindingKind:
    """Entry of the registry in `paddock.plan.findings`. `severity` names each that it can have; `step` for a Step."""

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
