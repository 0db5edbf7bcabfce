"""A plan as GitHub-flavoured Markdown: for a pull request or a job summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from paddock.html.markup import clean
from paddock.plan.diff.model import Diff
from paddock.plan.document.model import PlanDocument
from paddock.plan.output import pull_request, view
from paddock.plan.output.format import cores, count, gibibytes, money, quantity

LIMIT = 65_536
"""Characters that GitHub takes in a comment."""
_MARKS = {"error": "\u274c", "warning": "\u26a0\ufe0f", "info": "\u2139\ufe0f", "ready": "\u2705"}
_CELL = 600
"""Characters of a cell before it is cut."""
_ROWS = (1000, 200, 60, 20, 8, 3)
"""Rows of a table: the most with which the whole stays below the limit."""


def render(document: PlanDocument, diff: Diff | None = None) -> str:
    """Return the page of a plan, which begins with the changes since another one.

    Tables are cut, and say by how much, until it is short enough for GitHub.
    """
    page = ""
    for limit in _ROWS:
        page = "\n".join(_lines(document, diff, limit)).rstrip() + "\n"
        if _length(page) < LIMIT:
            return page
    return page.encode("utf-16-le")[: 2 * (LIMIT - 200)].decode("utf-16-le", "ignore") + "\n\n... cut here\n"


def _length(page: str) -> int:
    """Length as GitHub counts it: what lies beyond the basic plane is two characters."""
    return len(page.encode("utf-16-le")) // 2


def _lines(document: PlanDocument, diff: Diff | None, limit: int) -> Iterator[str]:
    if diff:
        yield from pull_request.lines(diff, document, limit)
    fleet, verdict = document.fleet, view.summary(document)
    where = [fleet.region, f"Kubernetes {fleet.kubernetes}" if fleet.kubernetes else ""]
    yield f"## {_MARKS[verdict.state]} Plan for {_plain(document.stack)}: {verdict.words}"
    yield ""
    size = f"{count(len(view.cloud_resources(document)), 'resource')}, {count(len(document.pools), 'pool')}"
    yield ", ".join([*(_plain(part) for part in where if part), size])
    yield ""
    yield from _findings(document, limit)
    yield from _met(document, limit)
    yield from _before_up(document, limit)
    yield from _pools(document, limit)
    yield from _runners(document, limit)
    yield from _served(document, limit)
    yield from _cost(document, limit)
    yield from _quota(document, limit)
    yield from _fit(document, limit)
    yield from _compatibility(document, limit)
    yield from _rules(document, limit)
    yield from _resources(document, limit)


def _findings(document: PlanDocument, limit: int) -> Iterator[str]:
    rows = (
        (
            f"{_MARKS[finding.severity]} {finding.severity}",
            _code(finding.subject),
            f"{finding.message} ({finding.id})",
            _code(finding.fix),
        )
        for finding in view.findings(document)
    )
    yield from _table(("", "Subject", "Finding", "Fix"), rows, limit)


def _met(document: PlanDocument, limit: int) -> Iterator[str]:
    reading = document.doctor
    if not reading:
        return
    yield "### What `pulumi up` would meet"
    yield ""
    yield f"{_plain(view.read_by_doctor(reading))}."
    yield ""
    rows = (
        (f"{_MARKS[line.severity]} {line.status.upper()}", _code(line.subject), line.message, _code(line.fix))
        for line in reading.results
    )
    yield from _table(("", "Subject", "The doctor says", "Fix"), rows, limit)


def _before_up(document: PlanDocument, limit: int) -> Iterator[str]:
    steps = document.before_up
    if not steps:
        return
    yield "### Before `pulumi up`"
    yield ""
    for number, step in enumerate(steps[:limit], 1):
        yield f"{number}. {_plain(step.text)}" + (f": {_code(step.command)}" if step.command else "")
    if len(steps) > limit:
        yield ""
        yield f"... {limit} of {len(steps)} shown"
    yield ""


def _pools(document: PlanDocument, limit: int) -> Iterator[str]:
    if not document.pools:
        return
    yield "### Pools"
    yield ""
    yield from _table(
        ("Pool", "GPU", "Instances", "Capacity", "Nodes", "GPUs at most"),
        (
            (
                pool.name,
                f"{pool.gpu.name} {view.gpu_memory(pool)}".strip() + (f", {pool.sharing}" if pool.sharing else ""),
                ", ".join(instance.name for instance in pool.instances),
                " then ".join(pool.capacity) or "already there",
                f"{pool.nodes.min}\u2013{pool.nodes.max}",
                str(view.largest_gpus(pool)),
            )
            for pool in document.pools
        ),
        limit,
    )


def _runners(document: PlanDocument, limit: int) -> Iterator[str]:
    if not document.runners:
        return
    yield "### Runners"
    yield ""
    yield from _table(
        ("Runner", "runs-on", "Pool", "GPUs", "CPU", "Memory", "Jobs", "A node holds"),
        (
            (
                f"{runner.name} ({view.privileges(runner)})" if runner.privileged else runner.name,
                _code(f"[{', '.join(runner.labels)}]") if runner.labels else "unknown",
                runner.pool,
                str(runner.gpus),
                cores(runner.cpu),
                gibibytes(runner.memory),
                view.job_range(runner),
                ", ".join(
                    f"{fit.instance}: {fit.per_node or 'none'}" for fit in document.fit if fit.runner == runner.name
                ),
            )
            for runner in document.runners
        ),
        limit,
    )


def _served(document: PlanDocument, limit: int) -> Iterator[str]:
    if not document.served:
        return
    yield "### Served models"
    yield ""
    costs = {cost.model: cost for cost in document.cost.served} if document.cost else {}
    rows = []
    for model in document.served:
        fits, cost = [fit for fit in document.served_fit if fit.model == model.name], costs.get(model.name)
        rows.append(
            (
                model.name,
                f"{model.model} {model.dtype}".strip(),
                f"{model.min}\u2013{model.max}",
                str(model.gpus),
                ", ".join(f"{fit.instance}: {fit.per_node or 'none'}" for fit in fits),
                ", ".join(dict.fromkeys(f"{gibibytes(fit.needed)} of {gibibytes(fit.allowed)}" for fit in fits)),
                money(cost.idle_month.expected) if cost else "unknown",
                money(cost.most_month.expected) if cost else "unknown",
            )
        )
    columns = ("Model", "Of", "Replicas", "GPUs", "A node holds", "GPU memory", "A month idle", "A month at most")
    yield from _table(columns, rows, limit)


def _fit(document: PlanDocument, limit: int) -> Iterator[str]:
    wasteful = [fit for fit in document.fit if not fit.per_node or fit.stranded_gpus]
    if not wasteful:
        return
    yield "### Fit"
    yield ""
    yield from _table(
        ("Runner", "Node", "Jobs", "Limited by", "Stranded GPUs", "Lacks"),
        (
            (
                fit.runner,
                fit.instance,
                str(fit.per_node),
                fit.limiting,
                f"{fit.stranded_gpus:g}",
                "" if fit.per_node else view.lack(fit),
            )
            for fit in wasteful
        ),
        limit,
    )


def _compatibility(document: PlanDocument, limit: int) -> Iterator[str]:
    checks = document.compatibility
    if not checks:
        return
    passed = sum(check.verdict == "ok" for check in checks)
    yield from _folded(
        f"Compatibility: {passed} of {count(len(checks), 'check')} ok",
        _table(
            ("Check", "Subject", "Verdict", "Why"),
            (
                (view.CHECKS.get(check.id, check.id), _code(check.subject), view.OUTCOMES[check.verdict], check.message)
                for check in sorted(checks, key=lambda check: check.verdict == "ok")
            ),
            limit,
        ),
    )


def _cost(document: PlanDocument, limit: int) -> Iterator[str]:
    cost = document.cost
    if not cost:
        return
    low, expected, high = (money(amount) for amount in (cost.month.low, cost.month.expected, cost.month.high))
    month = f"**{expected} a month expected**, least {low}, most {high}; {money(cost.fixed.total)} of it is fixed."
    month = view.unknown_month(cost) or month
    yield "### Cost"
    yield ""
    yield f"{month} {view.unpriced(cost)}".rstrip()
    yield ""
    yield from _table(
        ("Runner", "An hour", "A job, warm", "A job, cold", "On GitHub-hosted"),
        (
            (
                runner.runner,
                money(runner.per_hour.expected),
                money(runner.job.warm.expected),
                money(runner.job.cold.expected),
                money(runner.github_hosted.job),
            )
            for runner in cost.runners
        ),
        limit,
    )
    lines = [f"- {_plain(line)}" for line in cost.assumptions]
    yield from _folded("What this assumes", [*lines, ""])


def _quota(document: PlanDocument, limit: int) -> Iterator[str]:
    quotas, lacking = document.quota, view.lacking_quotas(document)
    if not quotas:
        return
    rows = (
        (quota.name, quota.code or "", quantity(quota.need, quota.unit), quantity(quota.default))
        for quota in sorted(quotas, key=lambda quota: quota.shortfall <= 0)
    )
    table = _table(("Quota", "Code", "Needed at most", "A new account"), rows, limit)
    yield from _folded(f"Quotas: {len(lacking)} of {len(quotas)} above what a new account has", table)


def _rules(document: PlanDocument, limit: int) -> Iterator[str]:
    rules = document.rules
    if not rules or not rules.evaluated:
        return
    evaluated = {rule.id for rule in rules.evaluated}
    broken = {finding.id for finding in document.findings} & evaluated
    suppressed = rules.suppressed
    yield (
        f"{count(len(rules.evaluated), 'rule')} evaluated, {len(broken)} broken, "
        f"{count(len(suppressed), 'suppression')}."
    )
    yield ""
    rows = (
        (suppression.rule, _code(suppression.resource), suppression.reason, suppression.expires)
        for suppression in suppressed
    )
    yield from _table(("Suppressed", "Resource", "Reason", "Until"), rows, limit)


def _resources(document: PlanDocument, limit: int) -> Iterator[str]:
    resources = view.cloud_resources(document)
    names_by_type: dict[str, list[str]] = {}
    for resource in resources:
        names_by_type.setdefault(resource.type, []).append(resource.name)
    if not resources:
        return
    table = _table(
        ("Type", "Count", "Names"),
        ((_code(type_), str(len(names)), ", ".join(names)) for type_, names in sorted(names_by_type.items())),
        limit,
    )
    yield from _folded(count(len(resources), "resource"), table)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], limit: int) -> Iterator[str]:
    listed = list(rows)
    if not listed:
        return
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join([' --- '] * len(columns))}|"
    for row in listed[:limit]:
        yield f"| {' | '.join(cell if isinstance(cell, _Code) else _plain(cell) for cell in row)} |"
    if len(listed) > limit:
        yield ""
        yield f"... {limit} of {len(listed)} shown"
    yield ""


def _folded(title: str, inside: Iterable[str]) -> Iterator[str]:
    yield f"<details><summary>{_plain(title)}</summary>"
    yield ""
    yield from inside
    yield "</details>"
    yield ""


class _Code(str):
    """A cell that is Markdown already."""

    __slots__ = ()


def _line(cell: str) -> str:
    text = " ".join(clean(cell).split())
    return text if len(text) <= _CELL else f"{text[:_CELL]}\u2026 {len(text) - _CELL} characters more"


def _plain(cell: str) -> str:
    """Text that GitHub shows as it is: no markup, no mention, no reference to an issue."""
    text = _line(cell).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_{}\[\]|~!])", r"\\\1", text)
    return re.sub(r"([@#])(?=\w)", lambda match: f"&#{ord(match[1])};", text)


def _code(cell: str) -> _Code:
    """Text as code. What would end the code or the cell is written as an entity."""
    text = _line(cell)
    if not re.search(r"[`|\\]", text):
        return _Code(f"`{text}`" if text else "")
    return _Code("<code>" + re.sub(r"[^\w\s.,:=/-]|_", lambda match: f"&#{ord(match[0])};", text) + "</code>")
