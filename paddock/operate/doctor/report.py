"""Results of the doctor as data: what `--json` prints, and what the text is made of."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA: Final = "paddock.doctor/1"
"""The number changes when a key goes or changes its meaning; new keys leave it."""

Status = Literal["pass", "warn", "fail", "unknown"]
WORST_FIRST: tuple[Status, ...] = ("fail", "unknown", "warn", "pass")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Amount(_Model):
    """A number behind a result. `value` is None where it is not known."""

    name: str
    value: float | None
    unit: str
    source: str
    """Operation or file that it comes from."""
    as_of: str
    """Date or time of the value, in ISO 8601; empty where the source has none."""


class Result(_Model):
    """One line. `fix` is a command or an edit that ends it, empty where nothing is to do."""

    status: Status
    area: str
    subject: str
    message: str
    fix: str = ""
    permission: str = ""
    """IAM action, or permission at GitHub, that the credentials lack, where that is why the answer is unknown."""
    amounts: tuple[Amount, ...] = ()


class Report(_Model):
    """All results of a stack, in the order of the areas."""

    schema_: str = Field(SCHEMA, alias="schema", serialization_alias="schema")
    stack: str
    fleet: str
    region: str
    account: str | None
    """Number of the AWS account, None where nobody said it."""
    at: datetime
    seconds: float
    """Duration of the whole examination."""
    results: tuple[Result, ...]

    @property
    def counts(self) -> Counter[Status]:
        return Counter(result.status for result in self.results)

    @property
    def failed(self) -> bool:
        return any(result.status == "fail" for result in self.results)
