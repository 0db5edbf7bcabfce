"""The difference of two plans for people: lines on a terminal, and the comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from paddock.plan.diff.fields import clean
from paddock.plan.diff.model import Change, CostChange, Diff, FieldChange, FitChange, Roll
from paddock.plan.document.model import PlanDocument
from paddock.plan.output.format import count as counted
from paddock.plan.output.format import usd

LIMIT = 65_000
"""Bytes of a comment. GitHub takes 65,536 characters; those that count twice there are covered by counting bytes."""
ROWS = 60
"""Rows of a table in the comment."""

_MARK = {"add": "+", "remove": "-", "replace": "-/+", "change": "~"}
_GROUPS: tuple[tuple[str, Callable[[Change], bool]], ...] = (
    ("Replaced", lambda change: change.action == "replace"),
    ("Removed", lambda change: change.action == "remove"),
    (
        "Perhaps replaced: unknown to Paddock, look at pulumi preview",
        lambda c: c.action == "change" and c.replaced == "unknown",
    ),
    ("Changed in place", lambda change: change.action == "change" and change.replaced != "unknown"),
    ("Added", lambda change: change.action == "add"),
)
_ROLLED = {
    "roll": "all nodes are replaced",
    "replace": "the group is replaced",
    "remove": "the group is removed",
    "unknown": "may roll",
}
_SET = {
    "add": "new",
    "remove": "removed",
    "replace": "replaced",
    "unknown": "perhaps replaced",
    "restart": "restarted",
    "resize": "resized",
}


def marker(stack: str) -> str:
    """Return the hidden first line by which a workflow finds the comment it wrote before."""
    return f"<!-- paddock-plan stack={re.sub(r'[^A-Za-z0-9._-]', '_', clean(stack))} -->"


def headline(diff: Diff) -> str:
    """Return the whole difference in one sentence without a stop."""
    if diff.empty and not diff.refused:
        return "nothing changes"
    unsure = sum(not change.follows for change in diff.unsure)
    counts = [
        ("replaces", diff.count("replace") - diff.following),
        ("replaces in consequence", diff.following),
        ("removes", diff.count("remove")),
        ("may replace", unsure),
        ("may replace in consequence", len(diff.unsure) - unsure),
        ("changes", diff.count("change") - len(diff.unsure)),
        ("adds", diff.count("add")),
    ]
    parts = [f"{verb} {count}" for verb, count in counts if count]
    sure = [roll for roll in diff.rolls if roll.kind != "unknown"]
    if sure:
        parts.append(f"rolls {counted(len(sure), 'node group')}")
    jobs = sum(interruption.jobs for interruption in diff.interruptions)
    if jobs:
        parts.append(f"interrupts at most {counted(jobs, 'job')}")
    changed = ", ".join(parts) or "no resource changes"
    return f"will be refused: {changed}" if diff.refused else changed


def text(diff: Diff) -> str:
    """Plain lines for a terminal, worst first. Ends with a newline."""
    return "\n".join(_text(diff)) + "\n"


def _text(diff: Diff) -> Iterator[str]:
    yield f"Changes of {diff.stack}: {headline(diff)}"
    for line in diff.refused:
        yield f"  refused: {line}"
    for title, belongs in _GROUPS:
        group = [change for change in diff.changes if belongs(change)]
        if group:
            yield ""
            yield title
            for change, count in _together(group):
                yield from _resource(change, count)
    if diff.rolls:
        yield from ("", "Nodes that go")
        yield from (f"  {roll.group}: {_roll(roll)}" for roll in diff.rolls)
    if diff.interruptions:
        yield from ("", "Jobs that end, if they run at that time")
        for interruption in diff.interruptions:
            perhaps = "" if interruption.certain else ", perhaps"
            yield f"  {interruption.runner}: at most {interruption.jobs}, on nodes of pool {interruption.pool}{perhaps}"
    if diff.scale_sets:
        yield from ("", "Scale sets")
        yield from (f"  {scale_set.runner} {_SET[scale_set.kind]}: {scale_set.says}" for scale_set in diff.scale_sets)
    for title, findings in (("New findings", diff.new_findings), ("Fixed findings", diff.fixed_findings)):
        if findings:
            yield from ("", title)
            yield from (f"  {f.severity} {f.id} {f.subject}: {f.message}" for f in findings)
    if diff.fits:
        yield from ("", "Fits")
        yield from (f"  {fit.runner} on {fit.instance}: {_fit(fit)}" for fit in diff.fits)
    if diff.outputs:
        yield from ("", "Outputs")
        yield from (f"  {line}" for output in diff.outputs for line in _field(output))
    costs = list(_costs(diff.cost))
    if costs:
        yield from ("", "Cost a month", *(f"  {line}" for line in costs))
    if diff.notes:
        yield from ("", *(f"Note: {note}" for note in diff.notes))


def _together(changes: Sequence[Change]) -> list[tuple[Change, int]]:
    """Resources that follow another one in the same way, as one of them and how many; each other one by itself."""
    groups: dict[object, list[Change]] = {}
    for change in changes:
        key = (change.type, change.owner, change.action, change.why) if change.follows else change.urn
        groups.setdefault(key, []).append(change)
    return [(group[0], len(group)) for group in groups.values()]


def _titled(change: Change, count: int) -> str:
    owner = f"  ({change.owner})" if change.owner else ""
    more = f" and {count - 1} more" if count > 1 else ""
    return f"{_type(change)} {change.name}{more}{owner}"


def _resource(change: Change, count: int) -> Iterator[str]:
    yield f"  {_MARK[change.action]:>3} {_titled(change, count)}"
    for why in change.why:
        yield f"        because {why}" if change.action == "replace" else f"        {why}"
    for field in change.fields:
        yield from (f"        {line}" for line in _field(field))


def _field(change: FieldChange) -> Iterator[str]:
    """Return one difference: on one line where both sides are short, else a line for each line."""
    if "\n" not in f"{change.old}{change.new}" and len(f"{change.old}{change.new}") <= 100:
        if change.old is None:
            yield f"+ {change.path}: {change.new}"
        elif change.new is None:
            yield f"- {change.path}: {change.old}"
        else:
            same = " (another one)" if change.old == change.new else ""
            yield f"~ {change.path}: {change.old} -> {change.new}{same}"
        return
    yield f"~ {change.path}:"
    for sign, value in (("-", change.old), ("+", change.new)):
        if value is not None:
            yield from (f"{sign}   {line}" for line in value.split("\n"))


def _roll(roll: Roll) -> str:
    why = f" ({'; '.join(roll.why)})" if roll.why else ""
    return f"pool {roll.pool}, {roll.capacity}, at most {counted(roll.nodes, 'node')}: {_ROLLED[roll.kind]}{why}"


def _fit(change: FitChange) -> str:
    def side(count: int | None, limit: str) -> str:
        return "none" if count is None else f"{count} a node (limit: {limit})"

    if change.old is None:
        return f"new, {side(change.new, change.new_limit)}"
    if change.new is None:
        return "no longer"
    return f"{side(change.old, change.old_limit)} -> {side(change.new, change.new_limit)}"


def _costs(cost: CostChange) -> Iterator[str]:
    if cost.old_fixed != cost.new_fixed:
        yield f"fixed: {_step(cost.old_fixed, cost.new_fixed)}"
    if cost.old != cost.new:
        for name, index in (("low", 0), ("high", 1)):
            was, becomes = (side[index] if side else None for side in (cost.old, cost.new))
            yield f"{name}: {_step(was, becomes)}"


def _step(old: float | None, new: float | None) -> str:
    if old is None or new is None:
        return f"{_money(old)} -> {_money(new)}"
    percent = f", {(new - old) / old:+.0%}" if old else ""
    return f"{'-' if new < old else '+'}{_money(abs(new - old))} ({_money(old)} -> {_money(new)}{percent})"


def _money(amount: float | None) -> str:
    return usd(amount, whole_from=100)


def _type(change: Change) -> str:
    package, _, kind = change.type.rpartition(":")
    return f"{package.split('/')[0].replace(':', '.')}.{kind}"


def markdown(diff: Diff, new: PlanDocument) -> str:
    """Return the comment. `new` is the new plan. What does not fit is counted, never left out silently."""
    head = "\n".join(_head(diff, new))
    details = list(_details(diff))
    for rows in (ROWS, 20, 5, 0):
        body = "\n".join([head, *(_section(title, lines, rows) for title, lines in details), _FOOT])
        if len(body.encode()) <= LIMIT:
            return body
    return _clip(head, f"\n\n… the rest is too long for a comment.\n\n{_FOOT}")


_FOOT = (
    "<sub>From two plans, without credentials: neither what is really there nor a secret's value is seen. "
    "`pulumi preview` has the last word.</sub>\n"
)


def _clip(body: str, end: str) -> str:
    room = LIMIT - len(end.encode())
    return body.encode()[:room].decode("utf-8", "ignore").rpartition("\n")[0] + end


def _head(diff: Diff, new: PlanDocument) -> Iterator[str]:
    where = f" in {code(new.fleet.region)}" if new.fleet.region else ""
    yield marker(diff.stack)
    yield f"### Plan of {code(diff.stack)}{where}: {headline(diff)}"
    yield ""
    if diff.empty and not diff.refused:
        yield "This change leaves every resource, fit, finding and price of the stack as it is."
        yield ""
        return
    for line in diff.refused:
        yield f"> **Refused**: {escape(line)}"
        yield ">"
    if diff.refused:
        yield ""
    rows = list(_risks(diff))
    if rows:
        yield from _table(("risk", "what", "how much"), rows, ROWS)
    costs = list(_costs(diff.cost))
    if costs:
        yield f"**Cost a month**: {escape('; '.join(costs))}"
        yield ""
    for note in diff.notes:
        yield f"Note: {escape(note)}"
        yield ""


def _risks(diff: Diff) -> Iterator[tuple[str, str, str]]:
    for risk, action in (("replace", "replace"), ("destroy", "remove")):
        hit = [change for change in diff.changes if change.action == action]
        if hit:
            first = [change for change in hit if not change.follows]
            more = f", {len(hit) - len(first)} in consequence" if len(first) < len(hit) else ""
            yield risk, _names(first or hit), f"{counted(len(first), 'resource')}{more}"
    if diff.unsure:
        first = [change for change in diff.unsure if not change.follows]
        yield "unknown", _names(first or diff.unsure), f"{counted(len(diff.unsure), 'resource')}, perhaps replaced"
    for roll in diff.rolls:
        yield (
            "nodes",
            f"{code(roll.group)} {roll.capacity}: {_ROLLED[roll.kind]}",
            f"at most {counted(roll.nodes, 'node')}",
        )
    for interruption in diff.interruptions:
        perhaps = "" if interruption.certain else ", perhaps"
        yield (
            "jobs",
            f"running jobs of {code(interruption.runner)} end",
            f"at most {counted(interruption.jobs, 'job')}{perhaps}",
        )
    for scale_set in diff.scale_sets:
        if scale_set.kind in ("remove", "replace", "unknown"):
            yield "queue", f"scale set {code(scale_set.runner)} {_SET[scale_set.kind]}", escape(scale_set.says)
    errors = sum(finding.severity == "error" for finding in diff.new_findings)
    if errors:
        yield "plan", "new errors", str(errors)


def _names(changes: Sequence[Change]) -> str:
    """Return the resources that matter most, by name; the rest by number."""
    names = list(dict.fromkeys(f"{change.type.rpartition(':')[2]} {change.name}" for change in changes))
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(code(name) for name in names[:6]) + more


_Content = list[list[str]] | tuple[Sequence[str], Sequence[Sequence[str]]]


def _details(diff: Diff) -> Iterator[tuple[str, _Content]]:
    """Sections: a title, and either blocks of lines for a diff or the columns and rows of a table."""
    for title, belongs in _GROUPS:
        group = [change for change in diff.changes if belongs(change)]
        if group:
            yield f"{title} ({len(group)})", [_block(change, count) for change, count in _together(group)]
    if diff.rolls:
        rows = [
            (code(r.group), escape(r.pool), escape(r.capacity), str(r.nodes), _ROLLED[r.kind], escape("; ".join(r.why)))
            for r in diff.rolls
        ]
        yield f"Nodes that go ({len(rows)})", (("node group", "pool", "capacity", "at most", "what", "why"), rows)
    if diff.scale_sets:
        sets = [(code(scale_set.runner), _SET[scale_set.kind], escape(scale_set.says)) for scale_set in diff.scale_sets]
        yield f"Scale sets ({len(sets)})", (("runner", "what", "so"), sets)
    for title, findings in (("New findings", diff.new_findings), ("Fixed findings", diff.fixed_findings)):
        if findings:
            finding_rows = [
                (f.severity, code(f.id), code(f.subject), escape(f.message), escape(f.fix)) for f in findings
            ]
            yield f"{title} ({len(finding_rows)})", (("severity", "id", "subject", "message", "fix"), finding_rows)
    if diff.fits:
        fits = [(code(fit.runner), escape(fit.pool), code(fit.instance), escape(_fit(fit))) for fit in diff.fits]
        yield f"Fits ({len(fits)})", (("runner", "pool", "instance", "jobs of it"), fits)
    if diff.outputs:
        yield f"Outputs ({len(diff.outputs)})", [_signed(_field(output)) for output in diff.outputs]


def _section(title: str, content: _Content, limit: int) -> str:
    lines = _diff_block(content, limit) if isinstance(content, list) else _table(content[0], content[1], limit)
    opened = " open" if title.startswith(("Replaced", "Removed", "New findings")) else ""
    return "\n".join([f"<details{opened}><summary>{escape(title)}</summary>", "", *lines, "</details>", ""])


def _block(change: Change, count: int) -> list[str]:
    sign = {"add": "+", "remove": "-"}.get(change.action, "!")
    why = [f"#   {line}" for line in change.why]
    return [
        f"{sign} {_titled(change, count)}",
        *why,
        *_signed(line for field in change.fields for line in _field(field)),
    ]


def _signed(lines: Iterable[str]) -> list[str]:
    """Lines as GitHub colours a diff: the sign first."""
    return [f"!   {line[2:]}" if line.startswith("~ ") else f"{line[:1]}   {line[2:]}" for line in lines]


def _diff_block(blocks: list[list[str]], limit: int) -> Iterator[str]:
    shown_blocks = blocks[:limit]
    if shown_blocks:
        lines = [
            line
            for block in shown_blocks
            for line in (block if len(block) <= 40 else [*block[:40], f"#   … {len(block) - 40} more lines"])
        ]
        fence = "`" * max(3, 1 + max((len(run) for line in lines for run in re.findall("`+", line)), default=0))
        yield from (f"{fence}diff", *lines, fence)
    if len(blocks) > len(shown_blocks):
        yield f"… {len(blocks) - len(shown_blocks)} more are not shown."
    yield ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], limit: int) -> Iterator[str]:
    if rows[:limit]:
        yield f"| {' | '.join(columns)} |"
        yield f"|{' --- |' * len(columns)}"
        yield from (f"| {' | '.join(row)} |" for row in rows[:limit])
        yield ""
    if len(rows) > limit:
        yield f"… {len(rows) - limit} more are not shown."
        yield ""


def code(value: str) -> str:
    """Return a value as code, on one line, whatever it holds: nobody is mentioned and no link is made."""
    value = _line(value).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", value)), default=0))
    pad = " " if value.startswith("`") or value.endswith("`") else ""
    return f"{fence}{pad}{value}{pad}{fence}" if value else ""


def escape(value: str) -> str:
    """Return a sentence with values in it, on one line, with nothing that Markdown, HTML or GitHub would act on."""
    value = re.sub(r"([\\`*_{}\[\]<>|~#!])", r"\\\1", _line(value).replace("&", "&amp;"))
    return re.sub(r"(@|://|www\.|(?<=\w)#(?=\d))", lambda match: f"{match[1][0]}<!-- -->{match[1][1:]}", value)


def _line(value: str) -> str:
    return " ".join(clean(value).split())
