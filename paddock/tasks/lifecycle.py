"""A fleet's life after its first day: Actions Runner Controller upgraded, and all of it removed."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.duration import Seconds
from paddock.tasks.common import ROOT, task
from paddock.tasks.flags import CHANGE_HELP, LONGEST_JOB, positive
from paddock.terminal import JsonOutput, optional_path

_HELP = {
    **CHANGE_HELP,
    "timeout": "for runners to end, by default GitHub's own limit of a job",
    "dry-run": "show what would change, and change nothing",
}


@task(name="upgrade", help=_HELP)
def arc_upgrade(
    c: Context,
    stack: str = "dev",
    timeout: Seconds = LONGEST_JOB,
    dry_run: bool = False,
    kubeconfig: str | None = None,
    context: str | None = None,
    yes: bool = False,
    json: str | None = None,
) -> None:
    """Bring ARC to the pinned version: drain, CRDs and controller, scale sets, each checked; then resume."""
    from paddock.operate.cli.connect import Access
    from paddock.operate.cli.upgrade import run

    access = Access(optional_path("kubeconfig", kubeconfig), context)
    parsed = JsonOutput.parse(json)
    if code := run(ROOT, stack, access, patience=positive(timeout, "6h"), dry_run=dry_run, yes=yes, json=parsed):
        raise Exit(code=code)


@task(
    name="destroy",
    help={
        **_HELP,
        "with-running-jobs": "end jobs that run, instead of refusing",
        "with-protected": "remove what is protected too: cluster, VPC, keys, repositories without images",
    },
)
def fleet_destroy(
    c: Context,
    stack: str = "dev",
    timeout: Seconds = LONGEST_JOB,
    with_running_jobs: bool = False,
    with_protected: bool = False,
    dry_run: bool = False,
    kubeconfig: str | None = None,
    context: str | None = None,
    yes: bool = False,
    json: str | None = None,
) -> None:
    """Remove a fleet in order: runners, volumes, the rest; say what stays, what it costs and what removes it."""
    from paddock.operate.cli.connect import Access
    from paddock.operate.cli.destroy import run

    code = run(
        ROOT,
        stack,
        Access(optional_path("kubeconfig", kubeconfig), context),
        patience=positive(timeout, "6h"),
        with_running_jobs=with_running_jobs,
        with_protected=with_protected,
        dry_run=dry_run,
        yes=yes,
        json=JsonOutput.parse(json),
    )
    if code:
        raise Exit(code=code)
