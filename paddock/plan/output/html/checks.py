"""What was checked: what runs on what, and the rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.plan.output.html.markup import Child, Html, code, join, section, table, tag
from paddock.plan.output.html.reading import Document, count, part, rows, text, words

_OUTCOMES = {
    "ok": ("ready", "ok"),
    "minor-version": ("info", "minor-version mode"),
    "needs-compat": ("warning", "needs compat package"),
    "impossible": ("error", "impossible"),
    "unknown": ("info", "unknown"),
}
_WORST = ("impossible", "needs-compat", "unknown", "minor-version", "ok")
TITLES: Mapping[str, str] = {
    "CMP001": "CUDA on driver",
    "CMP002": "CUDA on GPU",
    "CMP003": "Driver on GPU",
    "CMP004": "Driver support",
    "CMP005": "Image on Kubernetes",
    "CMP006": "Image age",
    "CMP007": "Kubernetes support",
    "CMP008": "ARC labels",
    "CMP009": "GitHub Enterprise Server",
    "CMP010": "Runner age",
}
MARKS = {"error": "\u2717", "warning": "!", "info": "?", "ready": "\u2713"}


def compatibility(document: Document) -> Html | None:
    """Each check with the parts it judged, and what each verdict rests on."""
    found = rows(document, "compatibility") or rows(part(document, "compatibility"), "verdicts")
    if not found:
        return None
    matrix = table(
        "Compatibility by check",
        [("Check", ""), ("Parts", "")],
        [
            (
                TITLES.get(id_, id_),
                [
                    _chip(each)
                    for each in sorted(found, key=lambda each: _rank(text(each, "verdict")))
                    if text(each, "id") == id_
                ],
            )
            for id_ in sorted({text(each, "id") for each in found})
        ],
        hide_caption=True,
    )
    details = table(
        "What each verdict rests on",
        [("Check", ""), ("Subject", ""), ("Verdict", ""), ("Why", "wide"), ("Numbers", "wide"), ("Fix", "wide")],
        [
            (
                text(each, "id"),
                code(text(each, "subject")),
                _cell(text(each, "verdict")),
                text(each, "message"),
                _numbers(part(each, "numbers")),
                code(text(each, "fix")) if text(each, "fix") else "",
            )
            for each in sorted(found, key=lambda each: _rank(text(each, "verdict")))
        ],
        hide_caption=True,
    )
    return section(
        "compatibility",
        "Compatibility",
        matrix,
        tag("details", tag("summary", "What each verdict rests on"), details, class_="more"),
    )


def rules(document: Document) -> Html | None:
    """How many rules looked, what was suppressed and why, what could not be judged."""
    told = part(document, "rules")
    if not told:
        return None
    looked = evaluated(told)
    broken = {text(finding, "id") for finding in rows(document, "findings")}
    ids = [id_ for id_, _ in looked]
    hit = [id_ for id_ in ids if id_ in broken]
    suppressed, unseen = rows(told, "suppressed"), rows(told, "unseen")
    summary = (
        f"{count(len(ids), 'rule')} evaluated, {len(ids) - len(hit)} hold, {len(hit)} broken, "
        f"{count(len(suppressed), 'suppression')}."
    )
    marked = [
        tag("li", _sign("error" if id_ in broken else "ready"), tag("b", id_), " ", title, title=title or None)
        for id_, title in looked
    ]
    children: list[Child] = [tag("ul", marked, class_="rules")]
    if suppressed:
        children.append(
            table(
                "Suppressed",
                [("Rule", ""), ("Resource", ""), ("Reason", "wide"), ("Until", "")],
                [
                    (
                        text(each, "rule") or text(each, "id"),
                        text(each, "resource") or text(each, "subject"),
                        text(each, "reason", "no reason given"),
                        text(each, "expires") or text(each, "until", "unknown"),
                    )
                    for each in suppressed
                ],
            )
        )
    if unseen:
        listed = [(text(each, "rule"), text(each, "subject"), code(text(each, "property"))) for each in unseen]
        children.append(
            tag(
                "details",
                tag("summary", f"Not judged before the cloud has answered ({len(unseen)})"),
                table("Not judged", [("Rule", ""), ("Resource", ""), ("Property", "")], listed, hide_caption=True),
                class_="more",
            )
        )
    return section("rules", "Rules", *children, note=summary)


def evaluated(told: Document) -> list[tuple[str, str]]:
    """Rules that looked: id and title."""
    found = told.get("evaluated")
    if not isinstance(found, list):
        return []
    return [
        (text(each, "id"), text(each, "title")) if isinstance(each, Mapping) else (words(each), "") for each in found
    ]


def outcome(verdict: str) -> str:
    """A verdict in words."""
    return _OUTCOMES.get(verdict, ("info", verdict))[1]


def _chip(each: Document) -> Html:
    state, told = _OUTCOMES.get(text(each, "verdict"), ("info", text(each, "verdict")))
    seen = tag("span", f" {told}", class_="unseen" if told == "ok" else "note")
    return tag("span", _sign(state), text(each, "subject"), seen, class_="chip", title=text(each, "message") or None)


def _cell(verdict: str) -> Html:
    state, told = _OUTCOMES.get(verdict, ("info", verdict))
    return tag("span", _sign(state), told, class_="cell")


def _rank(verdict: str) -> int:
    return _WORST.index(verdict) if verdict in _WORST else len(_WORST)


def _sign(state: str) -> Html:
    return tag("span", MARKS.get(state, "?"), class_=f"sign {state}", aria_hidden="true")


def _numbers(numbers: Document) -> Html:
    pairs: list[Any] = [
        tag("span", f"{key.replace('_', ' ')} {words(value, 'unknown')}") for key, value in numbers.items()
    ]
    return join([[", " if index else "", pair] for index, pair in enumerate(pairs)])
