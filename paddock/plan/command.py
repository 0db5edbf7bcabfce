"""The work of `inv plan`, without Invoke: read, plan, print, write."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from paddock import clock
from paddock.errors import did_you_mean, printable
from paddock.fleet import load
from paddock.plan.diff.compare import compare
from paddock.plan.document import saved
from paddock.plan.document.builder import build_document
from paddock.plan.document.model import PlanDocument
from paddock.plan.finding import Severity, current_id
from paddock.plan.findings import FINDINGS
from paddock.plan.fix import fix
from paddock.plan.output import changes, explain, html, markdown, pull_request, terminal
from paddock.plan.output.format import clean
from paddock.plan.plan import DEFAULT_USAGE, Plan, Usage, build_plan
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, console, write

LEVELS: tuple[Severity, ...] = ("error", "warning", "info")
"""Worst first."""


@dataclass(frozen=True, slots=True)
class FailOn:
    """Findings and steps that fail a plan: findings of `level` or worse, and those of these ids."""

    level: Severity = "error"
    ids: frozenset[str] = frozenset()

    def count(self, document: PlanDocument) -> int:
        """Return how many findings and steps fail a plan."""
        levels = LEVELS[: LEVELS.index(self.level) + 1]
        return sum(f.severity in levels or f.id in self.ids for f in document.findings) + sum(
            step.id in self.ids for step in document.before_up
        )


def fail_on(text: str | None, *, strict: bool = False) -> FailOn:
    """Return what fails a plan, from `--fail-on LEVEL[,ID...]` and `--strict`. Raises BadFlag."""
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


@dataclass(frozen=True, slots=True)
class Options:
    """Forms that a plan is printed in, and where."""

    json: JsonOutput = NO_JSON
    markdown: Path | None = None
    html: Path | None = None
    against: Path | None = None
    comment: Path | None = None
    details: bool = False
    explain: frozenset[str] = frozenset()
    """Ids of what is printed in full, in place of the report."""
    fail_on: FailOn = FailOn()
    fix: frozenset[str] | None = None
    """Ids of findings to fix in the stack file; empty for all errors and warnings, None for no fix."""
    yes: bool = False
    """Fix without a question."""


def fix_ids(value: str | bool | None) -> frozenset[str] | None:
    """Return the ids in `--fix` or `--fix ID,ID...`; see Options. Raises BadFlag."""
    if value is None or value is False:
        return None
    return finding_ids("fix", value) if isinstance(value, str) else frozenset()


def finding_ids(flag: str, value: str) -> frozenset[str]:
    """Return the ids of findings and steps in the value of a flag, commas between. Raises BadFlag."""
    ids: set[str] = set()
    for word in (part.strip() for part in value.split(",")):
        id_ = current_id(word.upper())
        if id_ not in FINDINGS:
            hint = did_you_mean(word, FINDINGS, "docs/rules.md lists every id")
            raise BadFlag(
                f"--{flag}: {word!r} is no id of a finding\n    expected: ids such as FIT001\n    fix: {hint}"
            )
        ids.add(id_)
    return frozenset(ids)


LONGEST_JOB = 5 * 24 * 60
"""Minutes after which GitHub ends a job of a self-hosted runner."""
MOST_JOBS = 10_000_000


def usage(job_minutes: float, jobs_per_month: str | None) -> Usage:
    """Return the use that a month's cost is estimated for, from the flags. Raises BadFlag."""
    if not 0 < job_minutes <= LONGEST_JOB:  # also false of nan
        raise BadFlag(
            f"--job-minutes {job_minutes:g} is no length of a job\n    expected: more than 0, at most {LONGEST_JOB}"
        )
    if jobs_per_month is None:
        return Usage(job_minutes)
    try:
        jobs = float(jobs_per_month)
    except ValueError:
        jobs = -1
    if not 0 <= jobs <= MOST_JOBS:
        raise BadFlag(f"--jobs-per-month {jobs_per_month!r} is no number of jobs\n    expected: 0 to {MOST_JOBS}")
    return Usage(job_minutes, jobs)


def run(root: Path, stack: str, options: Options, usage: Usage = DEFAULT_USAGE) -> int:
    """Plan `stack`, print and write the plan, and return how many findings and refused changes fail it.

    Raises FleetError, EditError, PlanError, PlanFileError, BadFlag and OutputError.
    """
    if options.yes and options.fix is None:
        raise BadFlag("--yes has nothing to agree to\n    fix: leave it out, or add --fix")
    if options.comment and not options.against:
        raise BadFlag(
            "--comment needs a plan to compare with\n    fix: add --against PLAN.json, a plan that --json saved"
        )
    loaded = load(root, stack)
    # Read first: a saved plan that cannot be used should not cost the time of a new one.
    before = saved.read(options.against, stack, loaded.project) if options.against else None
    plan = build_plan(loaded, clock.today(), root=root, usage=usage)
    if options.fix is not None:
        plan = _fix(plan, root, options, usage)
    document = build_document(plan)
    diff = compare(before, document) if before else None
    if options.json.path is not None:  # the data of a large fleet takes a while
        options.json.write(document.data() | ({"diff": diff.data()} if diff else {}))
    if options.markdown is not None:
        write(options.markdown, markdown.render(document, diff))
    if options.html is not None:
        write(options.html, html.render(document, diff))
    if options.comment is not None and diff:
        write(options.comment, pull_request.markdown(diff, document))
    if not options.json.replaces_text:
        if diff:
            sys.stdout.write(printable(f"{changes.text(diff)}\n"))
        if options.explain:
            explain.show(document, console(), options.explain)
        else:
            terminal.show(document, console(), details=options.details)
    return options.fail_on.count(document) + (len(diff.refused) if diff else 0)


def _fix(plan: Plan, root: Path, options: Options, usage: Usage) -> Plan:
    """Show what an edit of the stack file fixes, write it where that is agreed to, and return the plan that then is."""
    out = sys.stderr if options.json.replaces_text else sys.stdout
    result = fix(plan, root, options.fix or (), usage)
    if result is None:
        out.write("Nothing to fix: no such finding has an edit of the stack file that ends it.\n\n")
        return plan
    out.writelines(f"{clean(line)}\n" for line in result.diff)
    for finding in result.findings:
        out.write(f"{finding.id}  {clean(f'{finding.subject}: {finding.message}')}\n")
    out.write("\n")
    out.flush()
    if not options.yes:
        if out is sys.stderr or not (sys.stdin.isatty() and out.isatty()):
            raise BadFlag(
                f"{result.path.name} is unchanged: there is no terminal to ask on\n    fix: add --yes to apply the diff"
            )
        if input(f"Write {result.path.name}? [y/N] ").strip().lower() not in ("y", "yes"):
            out.write("Nothing was changed.\n\n")
            return plan
    result.write()
    out.write(f"{result.path.name} is written; this is its plan now.\n\n")
    return result.plan
