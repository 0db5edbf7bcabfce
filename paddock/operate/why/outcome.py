"""Verdict of one link on a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from paddock.operate.snapshot.model import Reading

Status = Literal["ok", "waits", "broken", "unknown", "not-reached"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Verdict of a link. `waits`: nothing is broken here, something is under way."""

    status: Status
    evidence: str = ""
    runbook: str = ""
    """Id of the runbook of a broken link."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names that the runbook's fix holds."""
    fix: str = ""
    """Step that would make an unknown link known."""
    permission: str = ""
    ends: bool = False
    """True where no later link matters: nothing waits."""
    then: str = ""
    """Key of the link to continue with, where those between have nothing to judge."""
    passing: bool = False
    """True where a second reading, a few seconds later, says whether it is broken."""


def ok(evidence: str, *, ends: bool = False, then: str = "") -> Outcome:
    return Outcome("ok", evidence, ends=ends, then=then)


def waits(evidence: str, *, passing: bool = False) -> Outcome:
    return Outcome("waits", evidence, passing=passing)


def broken(runbook: str, evidence: str, **names: str) -> Outcome:
    return Outcome("broken", evidence, runbook, names)


def unknown(reason: str, fix: str = "") -> Outcome:
    return Outcome("unknown", reason, fix=fix)


def unread(reading: Reading, subject: str) -> Outcome:
    """Return the outcome for a part of the snapshot that is not known."""
    return Outcome("unknown", f"{subject}: {reading.reason}", fix=reading.fix, permission=reading.permission)
