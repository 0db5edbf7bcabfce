"""Maintenance of this repository: checks, tests, locks and documents."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass

from paddock import house
from paddock.console.command import command
from paddock.console.parameters import NoParameters, Parameters, parameter
from paddock.console.project import root


@dataclass(frozen=True, kw_only=True)
class Test(Parameters):
    """Parameters of `test`."""

    k: str = parameter("", "only tests whose name matches this expression")
    e2e: bool = parameter(
        False,
        "what needs real engines (Pulumi, Kubernetes, Docker, torch) or takes long, and all that an `./inv test` of the"
        " same files has not passed; fetches 6 GB once",
    )
    explore: bool = parameter(
        False,
        "what looks at length for what nobody has met: made-up input, faults at every moment, engines next to each"
        " other; fetches 6 GB once",
    )
    pytest: tuple[str, ...] = parameter((), "words for pytest", trailing=True)


@dataclass(frozen=True, kw_only=True)
class Lint(Parameters):
    """Parameters of `lint`."""

    fix: bool = parameter(False, "let ruff repair what it can")


@dataclass(frozen=True, kw_only=True)
class Check(Parameters):
    """Parameters of `check`."""

    fast: bool = parameter(False, "only what has changed, within three minutes: its lint, its rooms' tests and doors")
    since: str = parameter("", "as --fast, for what has changed since this commit")


@dataclass(frozen=True, kw_only=True)
class Lock(Parameters):
    """Parameters of `lock`."""

    upgrade: bool = parameter(False, "move to the newest allowed versions")
    package: str = parameter("", "upgrade this package alone")


@dataclass(frozen=True, kw_only=True)
class Docs(Parameters):
    """Parameters of `docs`."""

    serve: bool = parameter(False, "then show it on this machine, and build it again after each change")
    port: int = parameter(8000, "with --serve", ge=1)


@command(reports=False)
def test(parameters: Test) -> int:
    """Run the test suite. Raises CheckFailed."""
    house.test(k=parameters.k, e2e=parameters.e2e, explore=parameters.explore, extra=shlex.join(parameters.pytest))
    return 0


@command(reports=False)
def lint(parameters: Lint) -> int:
    """Check style, types and imports. Raises CheckFailed."""
    house.lint(fix=parameters.fix)
    return 0


@command(reports=False)
def check(parameters: Check) -> int:
    """Lint, then test. Raises CheckFailed and ChangedError."""
    if parameters.fast or parameters.since:
        house.check(parameters.since or "HEAD")
    else:
        house.lint()
        house.test()
    return 0


@command(reports=False)
def lock(parameters: Lock) -> int:
    """Write the locks. Raises CheckFailed."""
    house.lock(upgrade=parameters.upgrade, package=parameters.package)
    return 0


@command(reports=False)
def docs(parameters: Docs) -> int:
    """Build the site, and show it if asked. Raises PaddockError for a broken link."""
    from paddock.console.output import BadFlag
    from paddock.site import build

    if parameters.port > 65535:
        raise BadFlag(f"--port is {parameters.port}\n    expected: 1 to 65535")
    folder = build.build(root())
    shown = folder.relative_to(root()) if folder.is_relative_to(root()) else folder
    sys.stdout.write(f"{shown}/index.html\n")
    if parameters.serve:
        build.show(root(), parameters.port)
    return 0


@command(reports=False)
def generate(parameters: NoParameters) -> int:
    """Write pictures, reference pages and schemas. Raises OutputError and FleetError."""
    from paddock import runbooks
    from paddock.console.output import update
    from paddock.site import generated
    from paddock.slurm.submit.method import schema_text
    from paddock.tasks import reference

    generated.write_all(root())
    update(root() / "docs/method.schema.json", schema_text())
    update(root() / "docs/why-runbooks.md", runbooks.page())
    update(root() / reference.PATH, reference.page())
    return 0
