"""A fleet in its account: what is wrong before `pulumi up`, and its state after it."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.duration import Seconds
from paddock.tasks.common import ROOT, task
from paddock.tasks.flags import CHANGE_HELP, CLUSTER_HELP, LONGEST_JOB, positive
from paddock.terminal import JSON_HELP, JsonOutput, optional_path, output_path

_PATIENCE = Seconds("30m")


@task(
    help={
        "stack": "the stack that pulumi up makes: Pulumi.<stack>.yaml",
        "github-key": "the file with the App's private key, or a token, instead of what Pulumi or AWS keeps",
        "strict": "warnings and unknowns fail, too",
        "json": JSON_HELP,
    }
)
def doctor(
    c: Context, stack: str = "dev", github_key: str | None = None, strict: bool = False, json: str | None = None
) -> None:
    """Read the account, GitHub and this machine, and say what pulumi up of a stack would fail at, with the fix."""
    from paddock.operate.cli.doctor import run

    key = optional_path("github-key", github_key)
    if run(ROOT, stack, github_key=key, strict=strict, json=JsonOutput.parse(json)):
        raise Exit(code=1)


_ACCESS_HELP = {
    **CLUSTER_HELP,
    "github-key": "the file with the App's private key, or a token; without it GitHub is not asked",
}


@task(
    positional=["target"],
    help={
        "target": "a scale set, a runner, or the address of a job's page; by default every scale set",
        **_ACCESS_HELP,
    },
)
def why(
    c: Context,
    target: str = "",
    stack: str = "dev",
    kubeconfig: str | None = None,
    context: str | None = None,
    github_key: str | None = None,
    json: str | None = None,
) -> None:
    """Walk from GitHub's queue to the GPU and name the first broken link, with evidence and fix."""
    from paddock.operate.cli.connect import Access
    from paddock.operate.cli.why import run

    access = Access(optional_path("kubeconfig", kubeconfig), context, optional_path("github-key", github_key))
    if run(ROOT, stack, target, access, json=JsonOutput.parse(json)):
        raise Exit(code=1)


@task(
    help={**_ACCESS_HELP, "watch": "print it again every 10 seconds, until Ctrl-C"},
)
def status(
    c: Context,
    stack: str = "dev",
    kubeconfig: str | None = None,
    context: str | None = None,
    github_key: str | None = None,
    watch: bool = False,
    json: str | None = None,
) -> None:
    """Show pools, scale sets, the oldest waiting job with its reason, spot interruptions and dollars an hour."""
    from paddock.operate.cli.connect import Access
    from paddock.operate.cli.status import run

    access = Access(optional_path("kubeconfig", kubeconfig), context, optional_path("github-key", github_key))
    if run(ROOT, stack, access, watch=watch, json=JsonOutput.parse(json)):
        raise Exit(code=1)


@task(
    help={
        "stack": "the stack of the fleet: Pulumi.<stack>.yaml",
        "days": "whole days until today, in UTC: 1 to 365",
        "prometheus": "the address of the Prometheus that reads the fleet, for waste and workflows",
        "json": JSON_HELP,
    }
)
def cost(c: Context, stack: str = "dev", days: int = 7, prometheus: str = "", json: str | None = None) -> None:
    """Compare what AWS charged for a fleet with the plan's estimate, and name changes that cost less and waste."""
    from paddock.operate.cli.cost import run

    if run(ROOT, stack, days=days, prometheus=prometheus, json=JsonOutput.parse(json)):
        raise Exit(code=1)


@task(
    help={
        **_ACCESS_HELP,
        "canary": "a workflow to run, too: owner/repository/file.yml@branch, with --github-key",
        "timeout": "for each test, such as 30m",
        "junit": "also write the results there, as JUnit's XML",
    }
)
def verify(
    c: Context,
    stack: str = "dev",
    kubeconfig: str | None = None,
    context: str | None = None,
    github_key: str | None = None,
    canary: str = "",
    timeout: Seconds = _PATIENCE,
    junit: str | None = None,
    json: str | None = None,
) -> None:
    """Prove that a GPU job can run: nodes, nvidia-smi and torch in pods, a workflow; then take it all away."""
    from paddock.operate.cli.connect import Access
    from paddock.operate.cli.verify import run

    access = Access(optional_path("kubeconfig", kubeconfig), context, optional_path("github-key", github_key))
    junit_file = output_path("junit", junit)
    code = run(
        ROOT,
        stack,
        access,
        canary=canary,
        patience=positive(timeout, "30m"),
        junit_file=junit_file,
        json=JsonOutput.parse(json),
    )
    if code:
        raise Exit(code=code)


_CHANGE_HELP = {**CHANGE_HELP, "runner": "a runner of the stack file, or its scale set; by default every one"}
_POOL_HELP = "a pool: every runner on it, and its nodes"


@task(
    name="drain",
    help={
        **_CHANGE_HELP,
        "pool": _POOL_HELP,
        "wait": "wait until no runner is left",
        "timeout": "for --wait, by default GitHub's own limit of a job",
    },
)
def runners_drain(
    c: Context,
    stack: str = "dev",
    runner: str = "",
    pool: str = "",
    wait: bool = False,
    timeout: Seconds = LONGEST_JOB,
    kubeconfig: str | None = None,
    context: str | None = None,
    yes: bool = False,
    json: str | None = None,
) -> None:
    """Let runners take no new job while those that run go on; runners.resume gives back what was."""
    from paddock.operate.cli.connect import Access
    from paddock.operate.cli.runners import run

    access = Access(optional_path("kubeconfig", kubeconfig), context)
    seconds = positive(timeout, "6h")
    deadline = seconds if wait else None
    parsed = JsonOutput.parse(json)
    if code := run("drain", ROOT, stack, access, runner=runner, pool=pool, wait=deadline, yes=yes, json=parsed):
        raise Exit(code=code)


@task(name="resume", help={**_CHANGE_HELP, "pool": _POOL_HELP})
def runners_resume(
    c: Context,
    stack: str = "dev",
    runner: str = "",
    pool: str = "",
    kubeconfig: str | None = None,
    context: str | None = None,
    yes: bool = False,
    json: str | None = None,
) -> None:
    """Give back what runners.drain has kept."""
    from paddock.operate.cli.connect import Access
    from paddock.operate.cli.runners import run

    access = Access(optional_path("kubeconfig", kubeconfig), context)
    if code := run("resume", ROOT, stack, access, runner=runner, pool=pool, yes=yes, json=JsonOutput.parse(json)):
        raise Exit(code=code)


@task(name="recycle", help={**_CHANGE_HELP, "dry-run": "show what would be deleted, and delete nothing"})
def runners_recycle(
    c: Context,
    stack: str = "dev",
    runner: str = "",
    dry_run: bool = False,
    kubeconfig: str | None = None,
    context: str | None = None,
    yes: bool = False,
    json: str | None = None,
) -> None:
    """Delete listeners that are stuck and runners that failed, so that ARC makes them anew; never one with a job."""
    from paddock.operate.cli.connect import Access
    from paddock.operate.cli.runners import run

    access = Access(optional_path("kubeconfig", kubeconfig), context)
    parsed = JsonOutput.parse(json)
    if code := run("recycle", ROOT, stack, access, runner=runner, dry_run=dry_run, yes=yes, json=parsed):
        raise Exit(code=code)


_HOUR = Seconds("1h")


@task(
    name="rerun",
    iterable=["repository"],
    help={
        **_ACCESS_HELP,
        "github-key": "the file with the App's private key, or a token",
        "repository": "only this one, owner/name; may be given again. By default those of the App's installation",
        "since": "look at jobs that ended since then, such as 1h",
        "watch": "look until Ctrl-C, which also sees the instances of nodes before they go",
        "dry-run": "show what would be run again, and run nothing",
        "yes": "do it without a question",
    },
)
def runners_rerun(
    c: Context,
    stack: str = "dev",
    repository: list[str] | None = None,
    since: Seconds = _HOUR,
    watch: bool = False,
    dry_run: bool = False,
    kubeconfig: str | None = None,
    context: str | None = None,
    github_key: str | None = None,
    yes: bool = False,
    json: str | None = None,
) -> None:
    """Run jobs again whose node was reclaimed, at most twice and no others; say why each of the others is left."""
    from paddock.operate.cli.connect import Access
    from paddock.operate.cli.rerun import run

    access = Access(optional_path("kubeconfig", kubeconfig), context, optional_path("github-key", github_key))
    code = run(
        ROOT,
        stack,
        access,
        repositories=repository or (),
        since=since,
        watch=watch,
        dry_run=dry_run,
        yes=yes,
        json=JsonOutput.parse(json),
    )
    if code:
        raise Exit(code=code)
