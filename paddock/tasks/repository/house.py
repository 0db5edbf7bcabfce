"""The house: lint, tests, locks."""

from __future__ import annotations

from invoke.context import Context

from paddock.tasks.common import task


@task(
    help={
        "k": "only tests whose name matches this expression",
        "e2e": "what needs real engines (Pulumi, Kubernetes, Docker, torch) or takes long, and all that an `./inv test`"
        " of the same files has not passed; fetches 6 GB once",
        "explore": "what looks at length for what nobody has met: made-up input, faults at every moment, our own"
        " inference engine; fetches 6 GB once",
    }
)
def test(c: Context, k: str = "", e2e: bool = False, explore: bool = False) -> None:
    """Run the test suite: what a bare machine can; everything after -- goes to pytest."""
    from paddock import house

    house.test(k=k, e2e=e2e, explore=explore, extra=c.remainder)


@task(help={"fix": "let ruff repair what it can"})
def lint(c: Context, fix: bool = False) -> None:
    """Check style, types and who imports whom."""
    from paddock import house

    house.lint(fix=fix)


@task(
    help={
        "fast": "only what has changed, within three minutes: its lint, its rooms' tests and doors",
        "since": "as --fast, for what has changed since this commit",
    }
)
def check(c: Context, fast: bool = False, since: str = "") -> None:
    """Lint, then test: what CI runs before it has real engines."""
    from paddock import house

    if fast or since:
        house.check(since or "HEAD")
    else:
        house.lint()
        house.test()


@task(help={"upgrade": "move to the newest allowed versions", "package": "upgrade this package alone"})
def lock(c: Context, upgrade: bool = False, package: str = "") -> None:
    """Write locks/*.txt from pyproject.toml."""
    from paddock import house

    house.lock(upgrade=upgrade, package=package)
