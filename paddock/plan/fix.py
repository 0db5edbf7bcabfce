"""Applies the edits of findings to a stack file, in memory first: the plan of the result decides whether they hold."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.fleet import FleetError, load
from paddock.fleet.errors import EditError, Key
from paddock.fleet.stackfile import edit
from paddock.plan.finding import Finding
from paddock.plan.plan import DEFAULT_USAGE, Plan, Usage, build_plan

ROUNDS = 5
"""Plans made at most: an edit may change what another finding says, or touch the same key."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A stack file as it is and as it would be, with the findings whose edits made the difference."""

    path: Path
    before: bytes
    after: bytes
    findings: tuple[Finding, ...]
    plan: Plan
    """Plan of the file as it would be."""

    @property
    def diff(self) -> Iterator[str]:
        """Lines of a unified diff, without line breaks."""
        before, after = (content.decode("utf-8-sig").splitlines() for content in (self.before, self.after))
        yield from difflib.unified_diff(before, after, self.path.name, self.path.name, lineterm="", n=2)

    def write(self) -> None:
        """Replace the file, if it is still the one that was read. Raises EditError."""
        edit.replace(self.path, self.before, self.after)


def fix(plan: Plan, root: Path, ids: Collection[str] = (), usage: Usage = DEFAULT_USAGE) -> Fix | None:
    """Apply the edits of the findings with these ids; without any id, those of errors and warnings.

    Returns None where no finding has an edit. Raises EditError where the result would be wrong, or have a new error.
    """
    path = plan.stack.path
    before = content = edit.read(path)
    current = plan
    applied: dict[tuple[str, str], Finding] = {}
    for _ in range(ROUNDS):
        changes: dict[Key, Any] = {}
        for finding in current.findings:
            if not finding.edits or (finding.id not in ids if ids else finding.severity == "info"):
                continue
            edits = {entry.key: edit.REMOVE if entry.remove else entry.value for entry in finding.edits}
            if not _collide(edits, changes):
                changes |= edits
                applied.setdefault((finding.id, finding.subject), finding)
        after = edit.edited(path.name, content, changes) if changes else content
        if after == content:
            break
        content = after
        current = _plan(plan, root, content, applied.values(), usage)
    if content == before:
        return None
    earlier_errors = {(finding.id, finding.subject) for finding in plan.findings if finding.severity == "error"}
    for finding in current.findings:
        if finding.severity == "error" and (finding.id, finding.subject) not in earlier_errors:
            raise EditError(
                f"{path.name} is unchanged: with the fix of {_names(applied.values())} it would have a new error"
                f"\n    {finding.id} {finding.subject}: {finding.message}"
                "\n    fix: name the ids of some findings only, --fix ID,ID, or edit the file by hand"
            )
    return Fix(path, before, content, tuple(applied.values()), current)


def _plan(plan: Plan, root: Path, content: bytes, applied: Collection[Finding], usage: Usage) -> Plan:
    try:
        return build_plan(load(root, plan.stack.name, content), plan.today, root=root, usage=usage)
    except FleetError as error:
        raise EditError(
            f"{plan.stack.path.name} is unchanged: with the fix of {_names(applied)} it would be wrong\n{error}"
        ) from None


def _collide(edits: Mapping[Key, Any], changes: Mapping[Key, Any]) -> bool:
    """Return whether some of the edits touch what others change otherwise."""
    return any(
        key[: len(other)] == other[: len(key)] and (key != other or value != changes[other])
        for key, value in edits.items()
        for other in changes
    )


def _names(findings: Collection[Finding]) -> str:
    return ", ".join(dict.fromkeys(finding.id for finding in findings))
