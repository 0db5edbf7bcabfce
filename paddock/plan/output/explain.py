"""Findings and steps in full on a terminal: what holds, why, what was seen, and the fix."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rich.console import Console
from rich.text import Text

from paddock.errors import program
from paddock.plan.document.model import PlanDocument
from paddock.plan.finding import Finding, Step
from paddock.plan.findings import FINDINGS
from paddock.plan.rules import RULES

_MARGIN = 10
"""Columns of a line's name."""


def show(document: PlanDocument, out: Console, ids: Collection[str]) -> None:
    """Print everything that the plan says under these ids, in the order of the registry."""
    for id_ in (code for code in FINDINGS if code in ids):
        kind = FINDINGS[id_]
        reports: list[Finding | Step] = [finding for finding in document.findings if finding.id == id_]
        reports += [step for step in document.before_up if step.id == id_]
        out.print(Text.assemble((id_, "bold"), f"  {kind.severity}: {kind.title}"))
        if rule := RULES.get(id_):
            _line(out, "why", rule.why)
        if not reports:
            _line(out, "here", f"stack {document.stack} has nothing of it")
        for report in reports:
            out.print()
            for name, text in _parts(report, document.stack):
                _line(out, name, text)
        out.print()


def _parts(report: Finding | Step, stack: str) -> Iterator[tuple[str, str]]:
    yield "where", report.subject
    if isinstance(report, Step):
        yield "to do", report.text
        yield "run", report.command
        return
    yield report.severity, report.message
    yield "fix", report.fix
    if report.edits:
        yield "edit", f"{program()} plan --stack {stack} --fix {report.id} writes it, after a question"


def _line(out: Console, name: str, text: str) -> None:
    if not text:
        return
    margin = f"  {name:{_MARGIN - 2}}"
    if name in ("fix", "run"):
        out.print(Text.assemble((margin, "dim"), text), soft_wrap=True)  # on one line: it may be a command to copy
        return
    for line in Text(text).wrap(out, out.width - _MARGIN):
        line.rstrip()
        out.print(Text.assemble((margin, "dim"), line))
        margin = " " * _MARGIN
