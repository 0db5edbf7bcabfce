"""A fleet's life after its first day: Actions Runner Controller upgraded, and all of it removed."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.duration import Seconds
from paddock.tasks.common import ROOT, task
from paddock.terminal import JSON_HELP, BadFlag, JsonOutput, optional_path

_LONGEST_JOB = Seconds("6h")
_HELP = {
    "stack": "the stack of the fleet: Pulumi.<stack>.yaml",
    "timeout": "for runners to end, by default GitHub's own limit of a job",
    "dry-run": "show what would change, and change nothing",
    "kubeconfig": "the file with the way to the cluster, by default kubectl's",
    "context": "the context in it, by default the one of the fleet's cluster",
    "yes": "do it without a question",
    "json": JSON_HELP,
}


@task(name="upgrade", help=_HELP)
def arc_upgrade(
    c: Context,
    stack: str = "dev",
    timeout: Seconds = _LONGEST_JOB,
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
    if code := run(ROOT, stack, access, patience=_positive(timeout), dry_run=dry_run, yes=yes, json=parsed):
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
    timeout: Seconds = _LONGEST_JOB,
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
        patience=_positive(timeout),
        with_running_jobs=with_running_jobs,
        with_protected=with_protected,
        dry_run=dry_run,
        yes=yes,
        json=JsonOutput.parse(json),
    )
    if code:
        raise Exit(code=code)


def _positive(timeout: Seconds) -> float:
    """Return a flag's seconds. Raises BadFlag."""
    if not 0 < timeout < float("inf"):
        raise BadFlag(f"--timeout {timeout}\n    expected: more than nothing, such as 6h\n    fix: leave it out")
    return float(timeout)
