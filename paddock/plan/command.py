"""The work of `inv plan`, without Invoke: read, plan, print, write."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from paddock.fleet import load
from paddock.plan.diff.compare import compare
from paddock.plan.document import saved
from paddock.plan.document.builder import build_document
from paddock.plan.document.model import PlanDocument
from paddock.plan.output import html, markdown, pull_request, terminal
from paddock.plan.plan import DEFAULT_USAGE, Usage, build_plan
from paddock.terminal import BadFlag, console, write

STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, slots=True)
class Options:
    """Forms that a plan is printed in, and where. A `json` of `-` prints the document and nothing else."""

    json: Path | None = None
    markdown: Path | None = None
    html: Path | None = None
    against: Path | None = None
    comment: Path | None = None
    all_rows: bool = False
    strict: bool = False
    """Warnings count as errors."""


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
    """Plan `stack`, print and write the plan, and return how many findings fail it.

    Raises FleetError, PlanError, PlanFileError, BadFlag and OutputError.
    """
    if options.comment and not options.against:
        raise BadFlag(
            "--comment needs a plan to compare with\n    fix: add --against PLAN.json, a plan that --json saved"
        )
    loaded = load(root, stack)
    # Read first: a saved plan that cannot be used should not cost the time of a new one.
    before = saved.read(options.against, stack, loaded.project) if options.against else None
    document = build_document(build_plan(loaded, date.today(), root=root, usage=usage))
    diff = compare(before, document) if before else None
    if options.json == STANDARD_OUTPUT:
        data = document.data() | ({"diff": diff.data()} if diff else {})
        sys.stdout.write(f"{json.dumps(data, indent=2)}\n")
    elif options.json is not None:
        write(options.json, f"{json.dumps(document.data(), indent=2)}\n")
    if options.markdown is not None:
        write(options.markdown, markdown.render(document))
    if options.html is not None:
        write(options.html, html.render(document))
    if options.comment is not None and diff:
        write(options.comment, pull_request.markdown(diff, document))
    if options.json != STANDARD_OUTPUT:
        terminal.show(document, console(), all_rows=options.all_rows)
        if diff:
            sys.stdout.write(f"\n{pull_request.text(diff)}\n")
    refused = options.strict and diff is not None and diff.verdict == "refused"
    return failing(document, strict=options.strict) + refused


def failing(document: PlanDocument, *, strict: bool) -> int:
    """Return the number of findings that fail a plan: errors, and warnings with `strict`."""
    severities = {"error", "warning"} if strict else {"error"}
    return sum(finding.severity in severities for finding in document.findings)
