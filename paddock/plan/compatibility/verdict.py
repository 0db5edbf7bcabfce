"""Verdict of a compatibility check, with the numbers it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paddock.catalog.cuda_match import Outcome
from paddock.plan.finding import Edit, Finding, Severity

_SEVERITY: Mapping[Outcome, Severity | None] = {
    "ok": None,
    "minor-version": "info",
    "needs-compat": "warning",
    "impossible": "error",
    "unknown": "info",
}
_WORST_FIRST: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`numbers` are the facts that were compared, as text or numbers; `fix` is the cheapest edit, or empty."""

    id: str
    subject: str
    verdict: Outcome
    message: str
    numbers: Mapping[str, str | int | None] = field(hash=False)
    fix: str = ""
    concern: Severity | None = None
    """Severity of what is not wrong today, but somebody should act on: a support that ends soon, an old image."""
    edits: tuple[Edit, ...] = ()

    @property
    def severity(self) -> Severity | None:
        """Return the severity of the finding, or None when there is nothing to report."""
        severities = {_SEVERITY[self.verdict], self.concern}
        return next((severity for severity in _WORST_FIRST if severity in severities), None)


def findings(verdicts: Iterable[Verdict]) -> tuple[Finding, ...]:
    """Return the findings of verdicts that need attention."""
    return tuple(
        Finding(verdict.id, verdict.severity, verdict.subject, verdict.message, verdict.fix, verdict.edits)
        for verdict in verdicts
        if verdict.severity
    )
