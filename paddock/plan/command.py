"""What `inv plan` does, without Invoke: read, plan, print, write."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from paddock.fleet import load
from paddock.plan.diff.compare import compare
from paddock.plan.diff.model import Diff
from paddock.plan.document import saved
from paddock.plan.document.builder import build_document
from paddock.plan.output import html as page
from paddock.plan.output import markdown, pull_request
from paddock.plan.output import terminal as report
from paddock.plan.plan import DEFAULT_USAGE, Plan, Usage, build_plan
from paddock.terminal import BadFlag, console, write

STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a plan is printed as, and where. A `json` of `-` prints the document and nothing else."""

    json: Path | None = None
    markdown: Path | None = None
    html: Path | None = None
    against: Path | None = None
    comment: Path | None = None
    everything: bool = False
    strict: bool = False
    """Warnings count as errors."""


LONGEST_JOB = 5 * 24 * 60
"""Minutes after which GitHub ends a job of a self-hosted runner."""
MOST_JOBS = 10_000_000


def use(job_minutes: float, jobs_per_month: str | None) -> Usage:
    """What a month is reckoned with, from the flags. Raises BadFlag."""
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


def run(root: Path, stack: str, wanted: Wanted, use: Usage = DEFAULT_USAGE) -> int:
    """Plans `stack` and returns how many findings fail it.

    Raises FleetError, PlanError, PlanFileError, BadFlag and OutputError.
    """
    if wanted.comment and not wanted.against:
        raise BadFlag(
            "--comment needs a plan to compare with\n    fix: add --against PLAN.json, a plan that --json saved"
        )
    read = load(root, stack)
    # Read first: a saved plan that is no use should not cost the time of a new one.
    before = saved.read(wanted.against, stack, read.project) if wanted.against else None
    plan = build_plan(read, date.today(), root=root, usage=use)
    document = build_document(plan)
    told = document.data()
    if wanted.json is not None and wanted.json != STANDARD_OUTPUT:
        write(wanted.json, f"{json.dumps(told, indent=2)}\n")
    if wanted.markdown is not None:
        write(wanted.markdown, markdown.render(document))
    if wanted.html is not None:
        write(wanted.html, page.render(document))
    changes = compare(before, document) if before is not None else None
    if changes is not None and wanted.comment is not None:
        write(wanted.comment, pull_request.markdown(changes, document))
    if wanted.json == STANDARD_OUTPUT:
        sys.stdout.write(f"{json.dumps(_with_changes(told, changes), indent=2)}\n")
    else:
        report.show(document, console(), everything=wanted.everything)
        if changes is not None:
            sys.stdout.write(f"\n{pull_request.text(changes)}\n")
    refused = wanted.strict and changes is not None and changes.verdict == "refused"
    return failing(plan, strict=wanted.strict) + refused


def failing(plan: Plan, *, strict: bool) -> int:
    """Findings that fail a plan: errors, and warnings where they count."""
    counted = {"error", "warning"} if strict else {"error"}
    return sum(finding.severity in counted for finding in plan.findings)


def _with_changes(told: dict[str, Any], changes: Diff | None) -> Mapping[str, Any]:
    return told if changes is None else {**told, "diff": changes.model_dump(by_alias=True)}
