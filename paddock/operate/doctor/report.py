"""Results of the doctor: a line each, with its fix below to be copied whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from paddock.operate.report import OfFleet, part

Status = Literal["pass", "warn", "fail", "unknown"]
WORST_FIRST: tuple[Status, ...] = ("fail", "unknown", "warn", "pass")
NO_CREDENTIALS = "not read: there are no valid credentials for AWS"


@dataclass(frozen=True, kw_only=True)
class Amount:
    """A number behind a result. `value` is None where it is not known."""

    name: str
    value: float | None
    unit: str
    source: str
    """Operation or file that it comes from."""
    as_of: str
    """Date or time of the value, in ISO 8601; empty where the source has none."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line. `fix` is a command or an edit that ends it, empty where nothing is to do."""

    status: Status
    area: str
    subject: str
    message: str
    fix: str = ""
    permission: str = ""
    """IAM action, or permission at GitHub, that the credentials lack, where that is why the answer is unknown."""
    amounts: tuple[Amount, ...] = ()

    @property
    def unread(self) -> bool:
        return self.message == NO_CREDENTIALS


@dataclass(frozen=True, kw_only=True)
class Examination(OfFleet):
    """All results of a stack, in the order of the areas."""

    SCHEMA = "paddock.doctor/1"
    region: str
    account: str | None
    """Number of the AWS account, None where nobody said it."""
    at: datetime
    seconds: float
    """Duration of the whole examination."""
    results: tuple[Result, ...]
    strict: bool = False
    """Whether warnings and unknowns fail, too; not in the document."""

    def document(self) -> dict[str, Any]:
        return {key: value for key, value in super().document().items() if key != "strict"}

    @property
    def failed(self) -> bool:
        return any(result.status == "fail" for result in self.results)

    @property
    def exit_code(self) -> int:
        return int(self.failed or (self.strict and any(result.status != "pass" for result in self.results)))

    def text(self) -> Iterator[str]:
        """Yield a line a result; one line for all that could not be read without credentials."""
        yield self.heading("Doctor", self.region, f"account {self.account or 'unknown'}")
        area = ""
        for result in self.results:
            if result.unread:
                continue
            if result.area != area:
                area = result.area
                yield from ("", area)
            fix = "" if result.status == "pass" else result.fix
            yield from part(result.status.upper(), f"{result.subject}: {result.message}", fix, width=8)
        if unread := [result for result in self.results if result.unread]:
            areas = ", ".join(dict.fromkeys(result.area for result in unread))
            yield ""
            yield from part("UNKNOWN", f"{len(unread)} checks of {areas}: {NO_CREDENTIALS}", width=8)
        counts = Counter(result.status for result in self.results)
        yield ""
        shown = ", ".join(f"{counts[status]} {status.upper()}" for status in WORST_FIRST if counts[status])
        yield f"{shown}; {self.seconds:.1f} s, nothing was changed"
