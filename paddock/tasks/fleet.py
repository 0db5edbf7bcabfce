"""The fleet, before it costs money."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.duration import Minutes
from paddock.tasks.common import ROOT, task
from paddock.terminal import JSON_HELP, JsonOutput, optional_path, output_path

_JOB = Minutes("30m")


@task(
    optional=["fix"],
    help={
        "stack": "the stack to plan: Pulumi.<stack>.yaml",
        "json": JSON_HELP,
        "markdown": "also write the plan as Markdown to this file",
        "html": "also write the plan as one page to this file",
        "against": "compare with a plan that --json saved",
        "comment": "with --against: write the comparison to this file, as a comment for a pull request",
        "strict": "warnings fail the plan too, as with --fail-on warning",
        "fail-on": "LEVEL[,ID...]: findings of this level or worse fail the plan, and those of these ids;"
        " error by default",
        "fix": "apply the edits that end findings to the stack file, after a diff and a question: --fix for errors and"
        " warnings, --fix ID,ID... for those",
        "yes": "with --fix: do not ask",
        "details": "show every row, resources by kind, and findings and steps in full",
        "explain": "ID[,ID]: show these findings and steps in full, with the reason and the fix, and nothing else",
        "job-minutes": "length of a job, for its cost",
        "jobs-per-month": "jobs a month of each runner, for the month's cost; by default half of them are busy in"
        " working hours",
    },
)
def plan(
    c: Context,
    stack: str = "dev",
    json: str | None = None,
    markdown: str | None = None,
    html: str | None = None,
    against: str | None = None,
    comment: str | None = None,
    strict: bool = False,
    fail_on: str | None = None,
    fix: str | None = None,
    yes: bool = False,
    details: bool = False,
    explain: str | None = None,
    job_minutes: Minutes = _JOB,
    jobs_per_month: str | None = None,
) -> None:
    """Show what a stack would be, whether it is right, and what it costs: no cloud, no credentials, no network."""
    import gc

    gc.disable()  # one short process that makes much and drops little: collecting would cost a fifth of its time
    from paddock.plan.command import Options, finding_ids, fix_ids, run, usage
    from paddock.plan.command import fail_on as failing

    options = Options(
        json=JsonOutput.parse(json),
        markdown=output_path("markdown", markdown),
        html=output_path("html", html),
        against=optional_path("against", against),
        comment=output_path("comment", comment),
        details=details,
        explain=finding_ids("explain", explain) if explain is not None else frozenset(),
        fail_on=failing(fail_on, strict=strict),
        fix=fix_ids(fix),
        yes=yes,
    )
    if run(ROOT, stack, options, usage(job_minutes, jobs_per_month)):
        raise Exit(code=1)


@task(
    help={
        "fleet": "only the value of paddock:fleet, not a whole stack file",
        "write": "write docs/configuration.md and docs/fleet.schema.json instead",
    }
)
def schema(c: Context, fleet: bool = False, write: bool = False) -> None:
    """Print the JSON Schema of a stack file, for editors and other tools."""
    import json
    import sys

    from paddock.fleet.docs import json_schema, reference

    if write:
        reference.write(ROOT)
    else:
        described = json_schema.schema() if fleet else json_schema.stack_schema()
        sys.stdout.write(f"{json.dumps(described, indent=2)}\n")


@task(help={"stack": "the stack whose charts and images to copy", "json": JSON_HELP})
def mirror(c: Context, stack: str = "dev", json: str | None = None) -> None:
    """Print the commands that copy a stack's charts and images into its mirror."""
    from paddock.plan import mirror

    mirror.show(ROOT, stack, json=JsonOutput.parse(json))
