"""The difference of two plans in words, tables and lines: what every renderer of it shows, unescaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from paddock.plan.diff.model import (
    Action,
    Amount,
    Change,
    CostChange,
    Diff,
    FieldChange,
    FitChange,
    PartCost,
    Rename,
    Roll,
)
from paddock.plan.output.format import count as counted
from paddock.plan.output.format import usd

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
ROLLED = {
    "roll": "all nodes are replaced",
    "replace": "the group is replaced",
    "remove": "the group is removed",
    "unknown": "may roll",
}
_DONE: tuple[tuple[Action, str], ...] = (
    ("remove", "removed"),
    ("add", "added"),
    ("replace", "replaced"),
    ("change", "changed in place"),
)
SCALE_SETS = {
    "add": "new",
    "remove": "removed",
    "replace": "replaced",
    "unknown": "perhaps replaced",
    "restart": "restarted",
    "resize": "resized",
}


def headline(diff: Diff) -> str:
    """Return the whole difference in one sentence without a stop."""
    if diff.empty and not diff.refused:
        return "nothing changes"
    unsure = sum(not change.follows for change in diff.unsure)
    counts = [
        ("renames", len(diff.renames)),
        ("replaces", diff.count("replace") - diff.following),
        ("replaces in consequence", diff.following),
        ("removes", diff.count("remove")),
        ("may replace", unsure),
        ("may replace in consequence", len(diff.unsure) - unsure),
        ("changes", diff.count("change") - len(diff.unsure)),
        ("adds", diff.count("add")),
    ]
    parts = [f"{verb} {count}" for verb, count in counts if count]
    expected = diff.cost.expected
    sure = [roll for roll in all_rolls(diff) if roll.kind != "unknown"]
    if sure:
        parts.append(f"rolls {counted(len(sure), 'node group')}")
    jobs = sum(end.jobs for end in (*diff.interruptions, *(end for name in diff.renames for end in name.interruptions)))
    if jobs:
        parts.append(f"interrupts at most {counted(jobs, 'job')}")
    changed = ", ".join(parts) or "no resource changes"
    if expected.differs:
        changed += f"; {_step(expected)} a month expected"
    return f"will be refused: {changed}" if diff.refused else changed


def text(diff: Diff) -> str:
    """Plain lines for a terminal, worst first. Ends with a newline."""
    return "\n".join(_text(diff)) + "\n"


def _text(diff: Diff) -> Iterator[str]:
    yield f"Changes of {diff.stack}: {headline(diff)}"
    for line in diff.refused:
        yield f"  refused: {line}"
    costs = [*month(diff.cost), *parts(diff.cost)]
    if costs:
        yield from ("", "Cost a month", *(f"  {line}" for line in costs))
    if diff.renames:
        yield from ("", "Renamed", *(f"  {line}" for line in map(renamed, diff.renames)))
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
        yield from (
            f"  {scale_set.runner} {SCALE_SETS[scale_set.kind]}: {scale_set.says}" for scale_set in diff.scale_sets
        )
    for title, findings in (("New findings", diff.new_findings), ("Fixed findings", diff.fixed_findings)):
        if findings:
            yield from ("", title)
            yield from (f"  {f.severity} {f.id} {f.subject}: {f.message}" for f in findings)
    if diff.new_steps:
        yield from ("", "New steps before pulumi up")
        for step in diff.new_steps:
            yield from (f"  {step.text}", *([f"    run: {step.command}"] if step.command else []))
    if diff.fits:
        yield from ("", "Fits")
        yield from (f"  {fit.runner} on {fit.instance}: {_fit(fit)}" for fit in diff.fits)
    if diff.outputs:
        yield from ("", "Outputs")
        yield from (f"  {line}" for output in diff.outputs for line in _field(output))
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
    return f"pool {roll.pool}, {roll.capacity}, at most {counted(roll.nodes, 'node')}: {ROLLED[roll.kind]}{why}"


def _fit(change: FitChange) -> str:
    def side(count: int | None, limit: str) -> str:
        return "none" if count is None else f"{count} a node (limit: {limit})"

    if change.old is None:
        return f"new, {side(change.new, change.new_limit)}"
    if change.new is None:
        return "no longer"
    return f"{side(change.old, change.old_limit)} -> {side(change.new, change.new_limit)}"


def all_rolls(diff: Diff) -> tuple[Roll, ...]:
    """Return the node groups that lose their nodes, those of renamed pools among them."""
    return (*diff.rolls, *(roll for rename in diff.renames for roll in rename.rolls))


def renamed(rename: Rename) -> str:
    """Return a renamed pool or runner on one line."""
    counts = [(sum(change.action == action for change in rename.changes), word) for action, word in _DONE]
    resources = ", ".join(f"{count} {word}" for count, word in counts if count)
    consequences = "".join(f"; {consequence}" for consequence in rename.consequences)
    return f"{rename.kind} {rename.old} -> {rename.new}: the same under another key ({resources}){consequences}"


def month(cost: CostChange) -> Iterator[str]:
    """Yield how a month in all changes, what is expected first."""
    amounts = (("expected", cost.expected), ("fixed", cost.fixed), ("low", cost.low), ("high", cost.high))
    yield from (f"{name}: {_step(amount)}" for name, amount in amounts if amount.differs)


def parts(cost: CostChange) -> Iterator[str]:
    """Yield how each pool's part of the month and each runner's hour change."""
    for title, part in cost_parts(cost):
        amounts = (("expected", part.expected), ("low", part.low), ("high", part.high), ("jobs a month", part.jobs))
        steps = (f"{name} {_step(amount)}" for name, amount in amounts if amount and amount.differs)
        yield f"{title}: {', '.join(steps)}"


def cost_table(cost: CostChange) -> list[tuple[str, ...]]:
    """Return rows of all amounts: what, low, expected, high, and a runner's jobs a month."""
    if not cost.differs:
        return []
    total = ("a month in all", _cell(cost.low), _cell(cost.expected), _cell(cost.high), "")
    fixed = ("of it fixed", _cell(cost.fixed), _cell(cost.fixed), _cell(cost.fixed), "")
    amounts = ((title, part.low, part.expected, part.high, part.jobs) for title, part in cost_parts(cost))
    return [total, fixed, *((title, *map(_cell, cells)) for title, *cells in amounts)]


COST_COLUMNS = ("", "least", "expected", "most", "its jobs a month")


def cost_parts(cost: CostChange) -> Iterator[tuple[str, PartCost]]:
    new = {"add": ", new", "remove": ", removed", "change": ""}
    yield from ((f"pool {part.name} a month{new[part.action]}", part) for part in cost.pools)
    yield from ((f"runner {part.name} an hour{new[part.action]}", part) for part in cost.runners)


def _cell(amount: Amount | None) -> str:
    if amount is None:
        return ""
    return _step(amount) if amount.differs else _money(amount.new)


def _step(amount: Amount) -> str:
    old, new = amount.old, amount.new
    if old is None or new is None:
        return f"{_money(old)} -> {_money(new)}"
    percent = f", {(new - old) / old:+.0%}" if old else ""
    return f"{'-' if new < old else '+'}{_money(abs(new - old))} ({_money(old)} -> {_money(new)}{percent})"


def _money(amount: float | None) -> str:
    return usd(amount, whole_from=100)


def _type(change: Change) -> str:
    package, _, kind = change.type.rpartition(":")
    return f"{package.split('/')[0].replace(':', '.')}.{kind}"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a detail of the difference, as raw text. Names of columns say which hold code."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Blocks = list[list[str]]
"""Lines of a diff, a block for each thing that differs; the first character of a line is its sign."""
CODE = frozenset({"node group", "runner", "id", "subject", "instance", "command"})
"""Columns of names of things."""


def details(diff: Diff) -> Iterator[tuple[str, Table | Blocks]]:
    """Yield sections: a title, and either blocks of lines for a diff or a table."""
    for title, belongs in _GROUPS:
        group = [change for change in diff.changes if belongs(change)]
        if group:
            yield f"{title} ({len(group)})", [_block(change, count) for change, count in _together(group)]
    if diff.rolls:
        groups = tuple(
            (r.group, r.pool, r.capacity, str(r.nodes), ROLLED[r.kind], "; ".join(r.why)) for r in diff.rolls
        )
        columns = ("node group", "pool", "capacity", "at most", "what", "why")
        yield f"Nodes that go ({len(groups)})", Table(columns, groups)
    if diff.scale_sets:
        sets = tuple((scale_set.runner, SCALE_SETS[scale_set.kind], scale_set.says) for scale_set in diff.scale_sets)
        yield f"Scale sets ({len(sets)})", Table(("runner", "what", "so"), sets)
    for title, findings in (("New findings", diff.new_findings), ("Fixed findings", diff.fixed_findings)):
        if findings:
            rows = tuple((f.severity, f.id, f.subject, f.message, f.fix) for f in findings)
            yield f"{title} ({len(rows)})", Table(("severity", "id", "subject", "message", "fix"), rows)
    if diff.new_steps:
        steps = tuple((step.subject, step.text, step.command) for step in diff.new_steps)
        yield f"New steps before pulumi up ({len(steps)})", Table(("subject", "what", "command"), steps)
    if diff.fits:
        fits = tuple((fit.runner, fit.pool, fit.instance, _fit(fit)) for fit in diff.fits)
        yield f"Fits ({len(fits)})", Table(("runner", "pool", "instance", "jobs of it"), fits)
    if diff.outputs:
        yield f"Outputs ({len(diff.outputs)})", [_signed(_field(output)) for output in diff.outputs]


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
