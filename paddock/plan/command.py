"""`plan`: what a stack would be, what is wrong and what it costs, printed and written in the forms asked for."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paddock import clock
from paddock.console.command import command
from paddock.console.output import BadFlag, console, write
from paddock.console.parameters import Flag, parameter
from paddock.console.project import OfStack, root
from paddock.console.question import agreed
from paddock.duration import Minutes
from paddock.errors import did_you_mean, printable
from paddock.fleet import load
from paddock.plan.finding import Severity, current_id

if TYPE_CHECKING:
    from paddock.plan.document.model import PlanDocument
    from paddock.plan.plan import Plan, Usage

LEVELS: tuple[Severity, ...] = ("error", "warning", "info")
"""Worst first."""
LONGEST_JOB = Minutes("120h")
"""After that GitHub ends a job of a self-hosted runner."""
MOST_JOBS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class PlanParameters(OfStack):
    """Parameters of `plan`."""

    markdown: Path | None = parameter(None, "also write the plan as Markdown to this file", writes=True)
    html: Path | None = parameter(None, "also write the plan as one page to this file", writes=True)
    against: Path | None = parameter(None, "compare with a plan that --json saved")
    comment: Path | None = parameter(
        None,
        "with --against: write the comparison to this file, as a comment for a pull request",
        writes=True,
    )
    with_doctor: Path | None = parameter(
        None,
        "a reading that doctor --json saved: show what pulumi up would meet; FAIL counts as an error, WARN and UNKNOWN"
        " as warnings",
    )
    strict: bool = parameter(False, "warnings fail the plan too, as with --fail-on warning")
    fail_on: str | None = parameter(
        None,
        "LEVEL[,ID...]: findings of this level or worse fail the plan, and those of these ids; error by default",
    )
    fix: str | None = parameter(
        None,
        "apply the edits that end findings to the stack file, after a diff and a question: --fix for errors and"
        " warnings, --fix ID,ID... for those",
        flag=Flag("fix", const="", optional=True),
    )
    yes: bool = parameter(False, "with --fix: do not ask")
    details: bool = parameter(False, "show every row, resources by kind, and findings and steps in full")
    explain: str | None = parameter(
        None, "ID[,ID]: show these findings and steps in full, with the reason and the fix, and nothing else"
    )
    job_minutes: float = parameter(Minutes("30m"), "length of a job, for its cost", unit=Minutes, gt=0)
    jobs_per_month: float | None = parameter(
        None,
        "jobs a month of each runner, for the month's cost; by default half of them are busy in working hours",
        ge=0,
    )


@dataclass(frozen=True, slots=True)
class FailOn:
    """Reasons to fail a plan: findings and lines of the doctor of `level` or worse, findings and steps of these ids."""

    level: Severity = "error"
    ids: frozenset[str] = frozenset()

    def count(self, document: PlanDocument) -> int:
        """Return how many findings, steps and lines of the doctor fail a plan."""
        levels = LEVELS[: LEVELS.index(self.level) + 1]
        met = document.doctor.results if document.doctor else ()
        return (
            sum(f.severity in levels or f.id in self.ids for f in document.findings)
            + sum(step.id in self.ids for step in document.before_up)
            + sum(line.severity in levels for line in met)
        )


def fail_on(text: str | None, *, strict: bool = False) -> FailOn:
    """Return what fails a plan, from `--fail-on LEVEL[,ID...]` and `--strict`. Raises BadFlag."""
    from paddock.plan.findings import FINDINGS

    level: Severity = "warning" if strict else "error"
    ids: set[str] = set()
    for word in (part.strip() for part in text.split(",")) if text is not None else ():
        if named := next((known for known in LEVELS if known == word.lower()), None):
            level = max(level, named, key=LEVELS.index)
        elif (id_ := current_id(word.upper())) in FINDINGS:
            ids.add(id_)
        else:
            hint = did_you_mean(word, (*LEVELS, *FINDINGS), "docs/rules.md lists every id")
            raise BadFlag(
                f"--fail-on {text}: {word!r} is neither a level nor the id of a finding"
                f"\n    expected: LEVEL[,ID...] with a level of {', '.join(LEVELS)}\n    fix: {hint}"
            )
    return FailOn(level, frozenset(ids))


def finding_ids(flag: str, value: str) -> frozenset[str]:
    """Return the ids of findings and steps in the value of a flag, with commas between. Raises BadFlag."""
    from paddock.plan.findings import FINDINGS

    ids: set[str] = set()
    for word in (part.strip() for part in value.split(",")) if value else ():
        id_ = current_id(word.upper())
        if id_ not in FINDINGS:
            hint = did_you_mean(word, FINDINGS, "docs/rules.md lists every id")
            raise BadFlag(
                f"--{flag}: {word!r} is not the id of a finding\n    expected: ids such as FIT001\n    fix: {hint}"
            )
        ids.add(id_)
    return frozenset(ids)


def _check(parameters: PlanParameters) -> None:
    if parameters.yes and parameters.fix is None:
        raise BadFlag("--yes has nothing to agree to\n    fix: leave it out, or add --fix")
    if parameters.comment and not parameters.against:
        raise BadFlag(
            "--comment needs a plan to compare with\n    fix: add --against PLAN.json, a plan that --json saved"
        )
    if parameters.job_minutes > LONGEST_JOB:
        raise BadFlag(f"--job-minutes is {parameters.job_minutes:g}\n    expected: at most {LONGEST_JOB:g}, five days")
    if (parameters.jobs_per_month or 0) > MOST_JOBS:
        raise BadFlag(f"--jobs-per-month is {parameters.jobs_per_month:g}\n    expected: at most {MOST_JOBS}")


@command()
def plan(parameters: PlanParameters) -> int:
    """Plan the stack, print and write the plan; exit code 1 where findings, the doctor or refused changes fail it.

    Raises FleetError, EditError, PlanError, PlanFileError, BadFlag and OutputError.
    """
    _check(parameters)
    explained = finding_ids("explain", parameters.explain or "")
    failing = fail_on(parameters.fail_on, strict=parameters.strict)
    fixed = finding_ids("fix", parameters.fix or "")
    gc.disable()  # one short process that makes much and drops little: collecting would cost a fifth of its time
    from paddock.plan.diff.compare import compare
    from paddock.plan.document import doctor, saved
    from paddock.plan.document.builder import build_document
    from paddock.plan.output import changes, explain, html, markdown, pull_request, terminal
    from paddock.plan.plan import Usage, build_plan

    usage = Usage(parameters.job_minutes, parameters.jobs_per_month)
    loaded = load(root(), parameters.stack)
    # Read first: a saved plan that cannot be used should not cost the time of a new one.
    before = saved.read(parameters.against, parameters.stack, loaded.project) if parameters.against else None
    today = clock.today()
    reading = doctor.read(parameters.with_doctor, loaded, today) if parameters.with_doctor else None
    planned = build_plan(loaded, today, root=root(), usage=usage)
    if parameters.fix is not None:
        planned = _fix(planned, parameters, fixed, usage)
    document = build_document(planned, reading)
    diff = compare(before, document) if before else None
    if parameters.json.path is not None:  # the data of a large fleet takes a while
        parameters.json.write(document.data() | ({"diff": diff.data()} if diff else {}))
    if parameters.markdown is not None:
        write(parameters.markdown, markdown.render(document, diff))
    if parameters.html is not None:
        write(parameters.html, html.render(document, diff))
    if parameters.comment is not None and diff:
        write(parameters.comment, pull_request.markdown(diff, document))
    if not parameters.json.replaces_text:
        if diff:
            sys.stdout.write(printable(f"{changes.text(diff)}\n"))
        if parameters.explain is not None:
            explain.show(document, console(), explained)
        else:
            terminal.show(document, console(), details=parameters.details)
    return 1 if failing.count(document) or (diff and diff.refused) else 0


def _fix(planned: Plan, parameters: PlanParameters, ids: frozenset[str], usage: Usage) -> Plan:
    """Show what an edit of the stack file fixes, write it where that is agreed to, and return the plan that then is."""
    from paddock.html.markup import clean
    from paddock.plan.fix import fix

    out = sys.stderr if parameters.json.replaces_text else sys.stdout
    result = fix(planned, root(), ids, usage)
    if result is None:
        out.write("Nothing to fix: an edit of the stack file ends none of these findings.\n\n")
        return planned
    out.writelines(f"{clean(line)}\n" for line in result.diff)
    for finding in result.findings:
        out.write(f"{finding.id}  {clean(f'{finding.subject}: {finding.message}')}\n")
    out.write("\n")
    out.flush()
    if not agreed(f"Write {result.path.name}?", parameters.json, yes=parameters.yes):
        out.write("Nothing was changed.\n\n")
        return planned
    result.write()
    out.write(f"{result.path.name} is written; this is its plan now.\n\n")
    return result.plan
