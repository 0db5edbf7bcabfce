"""What Paddock can do, as a table of contents: one line of help a task, the work in the room that the task names.

A task imports its room inside the function, so that `inv --list` starts in a moment and a runner needs no Pulumi.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from invoke import tasks
from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit

# One letter a flag would make `plan -h` mean --html, and move with every flag that is added.
task = partial(tasks.task, auto_shortflags=False)

ROOT = Path(os.environ.get("PADDOCK_ROOT", ".")).resolve()
"""The project: where the stack files and the Pulumi program are."""


def caller_path(path: str) -> Path:
    """A path as the user meant it: relative to where `./inv` was called, not to the project."""
    return Path(os.environ.get("PADDOCK_CWD", "."), path)


def optional_path(flag: str, path: str | None) -> Path | None:
    """`caller_path` of a flag that may be left out. An empty value is a variable that nobody set, and no wish."""
    if path == "":
        raise Exit(
            f"--{flag} is empty\n    expected: the name of a file\n    fix: name one, or leave --{flag} out", code=2
        )
    return None if path is None else caller_path(path)


# The fleet, before it costs money.


@task(
    help={
        "stack": "the stack to plan: Pulumi.<stack>.yaml",
        "json": "also write the plan to this file; - prints it and nothing else",
        "markdown": "also write the plan as Markdown to this file",
        "html": "also write the plan as one page to this file",
        "against": "compare with a plan that --json saved",
        "comment": "with --against: write the comparison to this file, as a comment for a pull request",
        "strict": "warnings fail the plan too",
        "all": "show every row and finding",
        "job-minutes": "length of a job, for its cost; 30 by default",
        "jobs-per-month": "jobs a month of each runner, for the month's cost; by default half of them are busy in"
        " working hours",
    }
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
    all: bool = False,
    job_minutes: float = 30.0,
    jobs_per_month: str | None = None,
) -> None:
    """Show what a stack would be, whether it is right, and what it costs: no cloud, no credentials, no network."""
    import gc

    gc.disable()  # one short process that makes much and drops little: collecting would cost a fifth of its time
    from paddock.plan.command import STANDARD_OUTPUT, Wanted, run, use

    wanted = Wanted(
        json=STANDARD_OUTPUT if json == "-" else optional_path("json", json),
        markdown=optional_path("markdown", markdown),
        html=optional_path("html", html),
        against=optional_path("against", against),
        comment=optional_path("comment", comment),
        everything=all,
        strict=strict,
    )
    if run(ROOT, stack, wanted, use(job_minutes, jobs_per_month)):
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

    from paddock.fleet import reference, schema

    if write:
        reference.write(ROOT)
    else:
        described = schema.schema() if fleet else schema.stack_schema()
        sys.stdout.write(f"{json.dumps(described, indent=2)}\n")


@task(help={"stack": "the stack whose charts and images to copy", "json": "print what is copied where as JSON"})
def mirror(c: Context, stack: str = "dev", json: bool = False) -> None:
    """Print the commands that copy a stack's charts and images into its mirror."""
    from paddock.plan import mirror

    mirror.show(ROOT, stack, as_json=json)


# Facts, with their dates.


@task(
    name="refresh",
    help={
        "region": "price this region only; by default every region that has prices",
        "dry-run": "ask AWS and report, write nothing",
        "json": "print the report as JSON",
    },
)
def catalog_refresh(c: Context, region: str = "", dry_run: bool = False, json: bool = False) -> None:
    """Bring the catalogue's AWS facts up to date with the credentials of the environment."""
    from paddock.catalog import command

    if command.refresh(region or None, dry_run=dry_run, as_json=json):
        raise Exit(code=1)


@task(
    name="instances",
    help={
        "gpus": "at least this many GPUs",
        "min-memory": "GiB of GPU memory, at least",
        "gpu": "this GPU alone, such as t4 or a100-40gb",
        "region": "prices of this region",
        "max-price": "at most this many USD an hour, on demand",
        "sort": "price, spot, name, gpu-memory, vcpus or price-per-gpu",
        "all": "every row",
        "json": "print the rows as JSON",
    },
)
def catalog_instances(
    c: Context,
    gpus: int = 1,
    min_memory: float = 0.0,
    gpu: str = "",
    region: str = "us-west-2",
    max_price: float = 0.0,
    sort: str = "price",
    all: bool = False,
    json: bool = False,
) -> None:
    """List GPU instance types with their prices."""
    from paddock.catalog import command

    command.instances(
        gpus=gpus,
        min_memory=min_memory,
        gpu=gpu,
        region=region,
        max_price=max_price,
        sort=sort,
        everything=all,
        as_json=json,
    )


# The fleet applied on one machine.


@task(
    name="up",
    help={
        "stack": "the stack to apply: Pulumi.<stack>.yaml",
        "port": "the first of six ports on loopback; by default ports that are free",
        "boot-seconds": "how long a simulated node takes to boot; 0 takes the published figures",
        "keep": "leave running what runs when a later part fails, to look at it",
        "json": "print what was started and applied as JSON, and nothing else",
    },
)
def lab_up(
    c: Context, stack: str = "dev", port: int = 0, boot_seconds: float = 3.0, keep: bool = False, json: bool = False
) -> None:
    """Apply a stack on this machine: real Pulumi and Kubernetes, stand-ins for AWS and GitHub, simulated nodes."""
    from paddock.lab import command

    command.up(ROOT, stack, first_port=port or None, boot_seconds=boot_seconds or None, keep=keep, as_json=json)


@task(name="status", help={"stack": "the lab of this stack", "json": "print it as JSON"})
def lab_status(c: Context, stack: str = "dev", json: bool = False) -> None:
    """Show what of the lab runs, what runs on its nodes, and how far its jobs are."""
    from paddock.lab import command

    if not command.status(stack, as_json=json):
        raise Exit(code=1)


@task(
    name="demo",
    help={
        "stack": "the lab of this stack",
        "runner": "the runner that the job is for; by default the fleet's first",
        "job-seconds": "how long the job works",
        "json": "print the job's life as JSON, and nothing else",
    },
)
def lab_demo(c: Context, stack: str = "dev", runner: str = "", job_seconds: float = 5.0, json: bool = False) -> None:
    """Push one GPU job into the lab and follow it, until its node is given back."""
    from paddock.lab import command

    if not command.show_demo(ROOT, stack, runner=runner, job_seconds=job_seconds, as_json=json):
        raise Exit(code=1)


@task(
    name="down",
    help={
        "stack": "the lab of this stack",
        "keep": "keep its objects for the next lab.up",
        "json": "print what was ended as JSON",
    },
)
def lab_down(c: Context, stack: str = "dev", keep: bool = False, json: bool = False) -> None:
    """End the lab; nothing of it stays."""
    from paddock.lab import command

    command.down(stack, keep=keep, as_json=json)


# The house: lint, tests, locks.


@task(
    help={
        "k": "only tests whose name matches this expression",
        "e2e": "also the tests that need real engines (Pulumi, Kubernetes, a GPU)",
    }
)
def test(c: Context, k: str = "", e2e: bool = False) -> None:
    """Run the test suite; everything after -- goes to pytest."""
    from paddock import house

    house.test(k=k, e2e=e2e, extra=c.remainder)


@task(help={"fix": "let ruff repair what it can"})
def lint(c: Context, fix: bool = False) -> None:
    """Check style, types and who imports whom."""
    from paddock import house

    house.lint(fix=fix)


@task
def check(c: Context) -> None:
    """Lint, then test: what CI runs."""
    from paddock import house

    house.lint()
    house.test()


@task(help={"upgrade": "move to the newest allowed versions", "package": "upgrade this package alone"})
def lock(c: Context, upgrade: bool = False, package: str = "") -> None:
    """Write locks/*.txt from pyproject.toml."""
    from paddock import house

    house.lock(upgrade=upgrade, package=package)


namespace = Collection(
    *(plan, schema, mirror, check, lint, lock, test),
    catalog=Collection(catalog_instances, catalog_refresh),
    lab=Collection(lab_up, lab_status, lab_demo, lab_down),
)
