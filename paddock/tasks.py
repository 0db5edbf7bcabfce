"""What Paddock can do, as a table of contents: one line of help a task, the work in the room that the task names.

A task imports its room inside the function, so that `inv --list` starts in a moment and a runner needs no Pulumi.
"""

from __future__ import annotations

import os
from pathlib import Path

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

ROOT = Path(os.environ.get("PADDOCK_ROOT", ".")).resolve()
"""The project: where the stack files and the Pulumi program are."""


def caller_path(path: str) -> Path:
    """A path as the user meant it: relative to where `./inv` was called, not to the project."""
    return Path(os.environ.get("PADDOCK_CWD", "."), path)


# The fleet, before it costs money.


@task(
    help={
        "stack": "the stack to plan: Pulumi.<stack>.yaml",
        "json": "also write the plan to this file; - prints it and nothing else",
        "all": "show every row and finding",
    }
)
def plan(c: Context, stack: str = "dev", json: str = "", all: bool = False) -> None:
    """Show what a stack would be and whether its runners fit: no cloud, no credentials, no network."""
    import gc

    gc.disable()  # one short process that makes much and drops little: collecting would cost a fifth of its time
    from paddock.plan import command

    path = None if not json else Path("-") if json == "-" else caller_path(json)
    if command.run(ROOT, stack, json_path=path, everything=all):
        raise Exit(code=1)


@task(help={"fleet": "only the value of paddock:fleet, not a whole stack file"})
def schema(c: Context, fleet: bool = False) -> None:
    """Print the JSON Schema of a stack file, for editors and other tools."""
    import json
    import sys

    from paddock.fleet import schema as schemas

    described = schemas.schema() if fleet else schemas.stack_schema()
    sys.stdout.write(f"{json.dumps(described, indent=2)}\n")


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


namespace = Collection(plan, schema, check, lint, lock, test, catalog=Collection(catalog_refresh))
