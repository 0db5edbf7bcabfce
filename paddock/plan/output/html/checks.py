"""Compatibility checks and rules: what was checked, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.catalog.cuda_match import Outcome
from paddock.html.components import folded, section, table
from paddock.html.markup import Child, Html, code, join, tag
from paddock.plan.document.model import PlanDocument, Verdict
from paddock.plan.output.format import count, words
from paddock.plan.output.view import CHECKS, OUTCOMES

_STATES: Mapping[Outcome, str] = {
    "ok": "ready",
    "minor-version": "info",
    "needs-compat": "warning",
    "impossible": "error",
    "unknown": "info",
}
_MARKS = {"error": "\u2717", "warning": "!", "info": "?", "ready": "\u2713"}


def compatibility(document: PlanDocument) -> Html | None:
    """Return each check with the parts it compared, and what each verdict rests on."""
    if not document.compatibility:
        return None
    worst = list(OUTCOMES)
    verdicts = sorted(document.compatibility, key=lambda verdict: worst.index(verdict.verdict))
    matrix = table(
        "Compatibility by check",
        [("Check", ""), ("Parts", "")],
        [
            (CHECKS.get(id_, id_), [_chip(verdict) for verdict in verdicts if verdict.id == id_])
            for id_ in sorted({verdict.id for verdict in verdicts})
        ],
        hide_caption=True,
    )
    details = table(
        "What each verdict rests on",
        [("Check", ""), ("Subject", ""), ("Verdict", ""), ("Why", "wide"), ("Numbers", "wide"), ("Fix", "wide")],
        [
            (
                verdict.id,
                code(verdict.subject),
                tag("span", _sign(_STATES[verdict.verdict]), OUTCOMES[verdict.verdict], class_="cell"),
                verdict.message,
                _numbers(verdict.numbers),
                code(verdict.fix) if verdict.fix else "",
            )
            for verdict in verdicts
        ],
        hide_caption=True,
    )
    return section(
        "compatibility",
        "Compatibility",
        matrix,
        folded("What each verdict rests on", details),
    )


def rules(document: PlanDocument) -> Html | None:
    """Return how many rules were evaluated, what was suppressed and why, and what could not be judged."""
    rules = document.rules
    if not rules:
        return None
    findings = {finding.id for finding in document.findings}
    broken = [rule.id for rule in rules.evaluated if rule.id in findings]
    summary = (
        f"{count(len(rules.evaluated), 'rule')} evaluated, {len(rules.evaluated) - len(broken)} hold, "
        f"{len(broken)} broken, {count(len(rules.suppressed), 'suppression')}."
    )
    marked = [
        tag(
            "li",
            _sign("error" if rule.id in findings else "ready"),
            tag("b", rule.id),
            " ",
            rule.title,
            title=rule.title or None,
        )
        for rule in rules.evaluated
    ]
    children: list[Child] = [tag("ul", marked, class_="rules")]
    if rules.suppressed:
        children.append(
            table(
                "Suppressed",
                [("Rule", ""), ("Resource", ""), ("Reason", "wide"), ("Until", "")],
                [
                    (suppression.rule, suppression.resource, suppression.reason, suppression.expires)
                    for suppression in rules.suppressed
                ],
            )
        )
    if rules.unseen:
        rows = [(unseen.rule, unseen.subject, code(unseen.property)) for unseen in rules.unseen]
        children.append(
            folded(
                f"Not judged before the cloud has answered ({len(rows)})",
                table("Not judged", [("Rule", ""), ("Resource", ""), ("Property", "")], rows, hide_caption=True),
            )
        )
    return section("rules", "Rules", *children, note=summary)


def _chip(verdict: Verdict) -> Html:
    outcome = OUTCOMES[verdict.verdict]
    label = tag("span", f" {outcome}", class_="unseen" if outcome == "ok" else "note")
    sign = _sign(_STATES[verdict.verdict])
    return tag("span", sign, verdict.subject, label, class_="chip", title=verdict.message or None)


def _sign(state: str) -> Html:
    return tag("span", _MARKS[state], class_=f"sign {state}", aria_hidden="true")


def _numbers(numbers: Mapping[str, str | int | None]) -> Html:
    pairs: list[Any] = [
        tag("span", f"{key.replace('_', ' ')} {words(value, 'unknown')}") for key, value in numbers.items()
    ]
    return join([[", " if index else "", pair] for index, pair in enumerate(pairs)])
