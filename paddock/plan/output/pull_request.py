"""The difference of two plans as Markdown: the comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from paddock.plan.diff.fields import clean
from paddock.plan.diff.model import Change, Diff
from paddock.plan.document.model import PlanDocument
from paddock.plan.output import changes, view
from paddock.plan.output.format import count as counted

LIMIT = 65_000
"""Bytes of a comment. GitHub takes 65,536 characters; those that count twice there are covered by counting bytes."""
ROWS = 60
"""Rows of a table in the comment."""


def marker(stack: str) -> str:
    """Return the hidden first line by which a workflow finds the comment it wrote before."""
    return f"<!-- paddock-plan stack={re.sub(r'[^A-Za-z0-9._-]', '_', clean(stack))} -->"


def markdown(diff: Diff, new: PlanDocument) -> str:
    """Return the comment. `new` is the new plan. What does not fit is counted, never left out silently."""
    head = "\n".join([marker(diff.stack), *_head(diff, new), *_met(new)])
    for rows in (ROWS, 20, 5, 0):
        body = "\n".join([head, *_sections(diff, rows), _FOOT])
        if len(body.encode()) <= LIMIT:
            return body
    return _clip(head, f"\n\n… the rest is too long for a comment.\n\n{_FOOT}")


def lines(diff: Diff, new: PlanDocument, rows: int) -> Iterator[str]:
    """Yield the changes as they begin the page of a plan; tables have at most `rows`."""
    yield from _head(diff, new)
    yield from _sections(diff, rows)


_FOOT = (
    "<sub>From two plans, without credentials: neither what is really there nor a secret's value is seen. "
    "`pulumi preview` has the last word.</sub>\n"
)


def _clip(body: str, end: str) -> str:
    room = LIMIT - len(end.encode())
    return body.encode()[:room].decode("utf-8", "ignore").rpartition("\n")[0] + end


def _head(diff: Diff, new: PlanDocument) -> Iterator[str]:
    where = f" in {code(new.fleet.region)}" if new.fleet.region else ""
    yield f"### Plan for {code(diff.stack)}{where}: {escape(changes.headline(diff))}"
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
    totals = list(changes.month(diff.cost))
    if totals:
        yield f"**Cost a month**: {escape('; '.join(totals))}"
        yield ""
    for rename in diff.renames:
        yield f"- **Renamed** {escape(changes.renamed(rename))}"
    if diff.renames:
        yield ""
    risks = list(_risks(diff))
    if risks:
        yield from _table(("risk", "what", "how much"), risks, ROWS)
    for note in diff.notes:
        yield f"Note: {escape(note)}"
        yield ""


def _met(new: PlanDocument) -> Iterator[str]:
    """Yield what `pulumi up` would meet, as the doctor read it: what fails, and how much else there is."""
    reading = new.doctor
    if not reading:
        return
    yield f"**What `pulumi up` would meet**: {escape(view.read_by_doctor(reading))}."
    yield ""
    failed = [line for line in reading.results if line.status == "fail"]
    for line in failed[:ROWS]:
        fix = f" Fix: {code(line.fix)}" if line.fix else ""
        subject = f"{code(line.subject)}: " if line.subject else ""
        yield f"- **FAIL** {subject}{escape(line.message)}.{fix}"
    if len(failed) > ROWS:
        yield f"- … {len(failed) - ROWS} more are not shown."
    if failed:
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
            f"{code(roll.group)} {roll.capacity}: {changes.ROLLED[roll.kind]}",
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
            yield (
                "queue",
                f"scale set {code(scale_set.runner)} {changes.SCALE_SETS[scale_set.kind]}",
                escape(scale_set.says),
            )
    errors = sum(finding.severity == "error" for finding in diff.new_findings)
    if errors:
        yield "plan", "new errors", str(errors)


def _names(resources: Sequence[Change]) -> str:
    """Return the resources that matter most, by name; the rest by number."""
    names = list(dict.fromkeys(f"{change.type.rpartition(':')[2]} {change.name}" for change in resources))
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(code(name) for name in names[:6]) + more


def _sections(diff: Diff, limit: int) -> Iterator[str]:
    parts = changes.cost_table(diff.cost) if diff.cost.pools or diff.cost.runners else []
    if parts:
        yield _folded(
            "Cost by pool and runner", _table(changes.COST_COLUMNS, [[*map(escape, row)] for row in parts], limit)
        )
    for title, content in changes.details(diff):
        if isinstance(content, changes.Table):
            kinds = [code if name in changes.CODE else escape for name in content.columns]
            rows = [[kind(cell) for kind, cell in zip(kinds, row, strict=True)] for row in content.rows]
            yield _folded(title, _table(content.columns, rows, limit))
        else:
            yield _folded(title, _diff_block(content, limit))


def _folded(title: str, lines: Iterable[str]) -> str:
    opened = " open" if title.startswith(("Replaced", "Removed", "New findings")) else ""
    return "\n".join([f"<details{opened}><summary>{escape(title)}</summary>", "", *lines, "</details>", ""])


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
