"""A plan as GitHub-flavoured Markdown: for a pull request or a job summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from paddock.plan.output.html import limits
from paddock.plan.output.html.checks import TITLES, evaluated, outcome
from paddock.plan.output.html.markup import clean
from paddock.plan.output.html.money import amount, counted, monthly
from paddock.plan.output.html.picture import lack
from paddock.plan.output.html.reading import (
    Document,
    count,
    findings,
    made,
    number,
    part,
    pools,
    rows,
    runners,
    text,
    texts,
    verdict,
    whole,
)

LIMIT = 65_536
"""Characters that GitHub takes in a comment."""
_MARKS = {"error": "\u274c", "warning": "\u26a0\ufe0f", "info": "\u2139\ufe0f", "ready": "\u2705"}
_CELL = 600
"""Characters of a cell before it is cut."""
_ROWS = (1000, 200, 60, 20, 8, 3)
"""Rows of a table: the most with which the whole stays below the limit."""


def render(document: Document) -> str:
    """The page of a plan's document. Tables are cut, and say by how much, until it is short enough for GitHub."""
    page = ""
    for most in _ROWS:
        page = "\n".join(_lines(document, most)).rstrip() + "\n"
        if _length(page) < LIMIT:
            return page
    return page.encode("utf-16-le")[: 2 * (LIMIT - 200)].decode("utf-16-le", "ignore") + "\n\n... cut here\n"


def _length(page: str) -> int:
    """As GitHub counts: what lies beyond the basic plane is two characters."""
    return len(page.encode("utf-16-le")) // 2


def _lines(document: Document, most: int) -> Iterator[str]:
    fleet, told = part(document, "fleet"), verdict(document)
    where = [text(fleet, "region"), f"Kubernetes {text(fleet, 'kubernetes')}" if fleet.get("kubernetes") else ""]
    yield f"## {_MARKS[told.state]} Plan of {_plain(text(document, 'stack', 'unnamed'))}: {told.words}"
    yield ""
    size = f"{count(len(made(document)), 'resource')}, {count(len(pools(document)), 'pool')}"
    yield ", ".join([*(_plain(each) for each in where if each), size])
    yield ""
    yield from _findings(document, most)
    yield from _pools(document, most)
    yield from _runners(document, most)
    yield from _cost(document, most)
    yield from _quota(document, most)
    yield from _fit(document, most)
    yield from _compatibility(document, most)
    yield from _rules(document, most)
    yield from _resources(document, most)


def _findings(document: Document, most: int) -> Iterator[str]:
    found = findings(document)
    if not found:
        return
    yield from _table(
        ("", "Subject", "Finding", "Fix"),
        (
            (
                f"{_MARKS.get(text(each, 'severity'), '')} {text(each, 'severity')}",
                _code(text(each, "subject")),
                f"{text(each, 'message')} ({text(each, 'id')})",
                _code(text(each, "fix")),
            )
            for each in found
        ),
        most,
    )


def _pools(document: Document, most: int) -> Iterator[str]:
    found = pools(document)
    if not found:
        return
    yield "### Pools"
    yield ""
    yield from _table(
        ("Pool", "GPU", "Instances", "Capacity", "Nodes", "GPUs at most"),
        (
            (
                pool.name,
                f"{pool.gpu} {pool.gpu_memory}".strip() + (f", {pool.sharing}" if pool.sharing else ""),
                ", ".join(instance.name for instance in pool.instances),
                " then ".join(pool.capacity) or "already there",
                f"{pool.least}\u2013{pool.most}",
                str(pool.gpus),
            )
            for pool in found
        ),
        most,
    )


def _runners(document: Document, most: int) -> Iterator[str]:
    found = runners(document, 1)
    if not found:
        return
    fits = rows(document, "fit")
    yield "### Runners"
    yield ""
    yield from _table(
        ("Runner", "runs-on", "Pool", "GPUs", "CPU", "Memory", "Jobs", "A node holds"),
        (
            (
                runner.name,
                _code(f"[{', '.join(runner.labels)}]") if runner.labels else "unknown",
                runner.pool,
                str(runner.gpus),
                runner.cpu,
                runner.memory,
                runner.jobs,
                ", ".join(
                    f"{text(fit, 'instance')}: {whole(fit, 'per_node') or 'none'}"
                    for fit in fits
                    if text(fit, "runner") == runner.name
                ),
            )
            for runner in found.values()
        ),
        most,
    )


def _fit(document: Document, most: int) -> Iterator[str]:
    odd = [fit for fit in rows(document, "fit") if not whole(fit, "per_node") or number(fit, "stranded_gpus")]
    if not odd:
        return
    yield "### Fit"
    yield ""
    yield from _table(
        ("Runner", "Node", "Jobs", "Limited by", "Stranded GPUs", "Lacks"),
        (
            (
                text(fit, "runner"),
                text(fit, "instance"),
                str(whole(fit, "per_node")),
                text(fit, "limiting"),
                f"{number(fit, 'stranded_gpus') or 0:g}",
                "" if whole(fit, "per_node") else lack(fit),
            )
            for fit in odd
        ),
        most,
    )


def _compatibility(document: Document, most: int) -> Iterator[str]:
    found = rows(document, "compatibility") or rows(part(document, "compatibility"), "verdicts")
    if not found:
        return
    well = sum(text(each, "verdict") == "ok" for each in found)
    yield from _folded(
        f"Compatibility: {well} of {count(len(found), 'check')} ok",
        _table(
            ("Check", "Subject", "Verdict", "Why"),
            (
                (
                    TITLES.get(text(each, "id"), text(each, "id")),
                    _code(text(each, "subject")),
                    outcome(text(each, "verdict")),
                    text(each, "message"),
                )
                for each in sorted(found, key=lambda each: text(each, "verdict") == "ok")
            ),
            most,
        ),
    )


def _cost(document: Document, most: int) -> Iterator[str]:
    told = part(document, "cost")
    if not told:
        return
    month, fixed = monthly(document), part(part(told, "fixed"), "total")
    low, expected, high = (amount(part(month, key)) for key in ("low", "expected", "high"))
    yield "### Cost"
    yield ""
    told_month = f"**{expected} a month expected**, least {low}, most {high}; {amount(fixed)} of it is fixed."
    yield f"{told_month} {_unpriced(told)}".rstrip()
    yield ""
    yield from _table(
        ("Runner", "An hour", "A job, warm", "A job, cold", "On GitHub-hosted"),
        (
            (
                text(each, "runner"),
                amount(part(part(each, "per_hour"), "expected")),
                amount(part(part(part(each, "job"), "warm"), "expected")),
                amount(part(part(part(each, "job"), "cold"), "expected")),
                amount(part(part(each, "github_hosted"), "job")),
            )
            for each in rows(told, "runners")
        ),
        most,
    )
    lines = [f"- {_plain(line)}" for line in texts(told, "assumptions")]
    yield from _folded("What this assumes", [*lines, ""])


def _unpriced(told: Document) -> str:
    return f"{counted(told)}." if part(told, "resources") else ""


def _quota(document: Document, most: int) -> Iterator[str]:
    found, lacking = rows(document, "quota"), limits.short(document)
    if not found:
        return
    body = (
        (
            text(each, "name"),
            text(each, "code"),
            limits.amount(number(each, "need"), text(each, "unit")),
            limits.amount(number(each, "default")),
        )
        for each in (*lacking, *(each for each in found if each not in lacking))
    )
    table = _table(("Quota", "Code", "Needed at most", "A new account"), body, most)
    yield from _folded(f"Quotas: {len(lacking)} of {len(found)} above what a new account has", table)


def _rules(document: Document, most: int) -> Iterator[str]:
    told = part(document, "rules")
    looked = [id_ for id_, _ in evaluated(told)]
    if not looked:
        return
    broken = {text(finding, "id") for finding in rows(document, "findings")} & set(looked)
    suppressed = rows(told, "suppressed")
    yield f"{count(len(looked), 'rule')} evaluated, {len(broken)} broken, {count(len(suppressed), 'suppression')}."
    yield ""
    if suppressed:
        yield from _table(
            ("Suppressed", "Resource", "Reason", "Until"),
            (
                (text(s, "rule"), _code(text(s, "resource")), text(s, "reason", "none given"), text(s, "expires"))
                for s in suppressed
            ),
            most,
        )


def _resources(document: Document, most: int) -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    for each in made(document):
        kinds.setdefault(text(each, "type"), []).append(text(each, "name"))
    if not kinds:
        return
    table = _table(
        ("Type", "Count", "Names"),
        ((_code(kind), str(len(names)), ", ".join(names)) for kind, names in sorted(kinds.items())),
        most,
    )
    yield from _folded(f"{count(len(made(document)), 'resource')}", table)


def _table(columns: Sequence[str], body: Iterable[Sequence[str]], most: int) -> Iterator[str]:
    listed = list(body)
    if not listed:
        return
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join([' --- '] * len(columns))}|"
    for row in listed[:most]:
        yield f"| {' | '.join(cell if isinstance(cell, _Code) else _plain(cell) for cell in row)} |"
    if len(listed) > most:
        yield ""
        yield f"... {most} of {len(listed)} shown"
    yield ""


def _folded(summary: str, inside: Iterable[str]) -> Iterator[str]:
    yield f"<details><summary>{_plain(summary)}</summary>"
    yield ""
    yield from inside
    yield "</details>"
    yield ""


class _Code(str):
    """A cell that is Markdown already."""

    __slots__ = ()


def _line(cell: str) -> str:
    told = " ".join(clean(cell).split())
    return told if len(told) <= _CELL else f"{told[:_CELL]}\u2026 {len(told) - _CELL} characters more"


def _plain(cell: str) -> str:
    """Text that GitHub shows as it is: no markup, no mention, no reference to an issue."""
    told = _line(cell).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    told = re.sub(r"([\\`*_{}\[\]|~!])", r"\\\1", told)
    return re.sub(r"([@#])(?=\w)", lambda match: f"&#{ord(match[1])};", told)


def _code(cell: str) -> _Code:
    """Text as code. What would end the code or the cell is written as an entity."""
    told = _line(cell)
    if not re.search(r"[`|\\]", told):
        return _Code(f"`{told}`" if told else "")
    return _Code("<code>" + re.sub(r"[^\w\s.,:=/-]|_", lambda match: f"&#{ord(match[0])};", told) + "</code>")
