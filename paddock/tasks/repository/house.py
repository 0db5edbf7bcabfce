"""The house: lint, tests, locks."""

from __future__ import annotations

from invoke.context import Context

from paddock.tasks.common import task


@task(
    help={
        "k": "only tests whose name matches this expression",
        "e2e": "also the tests that need real engines (Pulumi, Kubernetes, torch) or take long",
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
