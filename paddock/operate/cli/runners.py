"""The work of `inv runners.*`, without Invoke: ask, change the cluster step by step, and say what was done."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from paddock.errors import PaddockError, did_you_mean, printable, program
from paddock.fleet import Fleet, load
from paddock.operate.cli.connect import Access, connect, to_change
from paddock.operate.runners import drain, recycle
from paddock.operate.runners.drain import Scope, Writer
from paddock.operate.runners.report import Command, Report, Step, Work
from paddock.operate.snapshot.model import Snapshot
from paddock.operate.snapshot.read import Sources, read
from paddock.operate.sources.kubernetes_changes import Changes
from paddock.operate.sources.unavailable import Unavailable
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, console, json_errors

INTERRUPTED = 130
POLL = 10.0
"""Seconds from one look at the runners to the next."""


class Refused(PaddockError):
    """The cluster cannot be read as it takes."""


@json_errors
def run(
    command: Command,
    root: Path,
    stack: str,
    access: Access,
    *,
    runner: str = "",
    pool: str = "",
    wait: float | None = None,
    dry_run: bool = False,
    yes: bool = False,
    json: JsonOutput = NO_JSON,
) -> int:
    """Change the runners of a stack; return 1 where a step failed or the deadline passed, 130 after Ctrl-C, else 0.

    `wait` is the deadline of a drain in seconds. Raises FleetError, BadFlag, NoCluster, NotDrained, Refused,
    OutputError.
    """
    fleet = load(root, stack).fleet
    scope = scope_of(fleet, command, runner, pool)
    sources = connect(fleet, access)
    cluster = to_change(fleet, sources)
    if not dry_run and not yes and not _agreed(command, scope, fleet, cluster.context, json):
        console(sys.stderr).print("Nothing was changed.")
        return 0
    writer = Changes(cluster)
    flags = (f" --runner {runner}" if runner else "") + (f" --pool {pool}" if pool else "") + f" --stack {stack}"
    try:
        report = work(
            command, fleet, stack, cluster.context, scope, sources, None if dry_run else writer, wait, flags=flags
        )
    except Unavailable as error:
        raise Refused(f"{error}\n    fix: {error.fix}" if error.fix else str(error)) from None
    finally:
        writer.close()
    json.write(report.model_dump(mode="json", by_alias=True))
    if not json.replaces_text:
        show(report)
    return INTERRUPTED if report.interrupted else int(report.failed)


def scope_of(fleet: Fleet, command: Command, runner: str, pool: str) -> Scope:
    """Return what two flags mean. Raises BadFlag."""
    if runner and pool:
        raise BadFlag("--runner with --pool\n    expected: one of them\n    fix: leave one out")
    if pool:
        if pool not in fleet.pools:
            raise _unknown("pool", pool, list(fleet.pools))
        return Scope([key for key, spec in fleet.runners.items() if spec.pool == pool], [pool])
    if runner:
        keys = [key for key, spec in fleet.runners.items() if runner in (key, spec.scale_set)]
        if not keys:
            raise _unknown("runner", runner, list(fleet.runners))
        return Scope(keys)
    return Scope(list(fleet.runners), list(fleet.pools) if command == "resume" else ())


def _unknown(flag: str, value: str, names: list[str]) -> BadFlag:
    hint = did_you_mean(value, names, f"one of {', '.join(names)}")
    return BadFlag(f"--{flag} {value}: the stack has none of that name\n    expected: {hint}\n    fix: ./inv status")


def work(
    command: Command,
    fleet: Fleet,
    stack: str,
    context: str,
    scope: Scope,
    sources: Sources,
    writer: Writer | None,
    wait: float | None = None,
    *,
    flags: str = "",
    snapshot: Callable[[], Snapshot] | None = None,
    poll: float = POLL,
) -> Report:
    """Run a command. Raises NotDrained and Unavailable before anything is changed."""
    parts = recycle.PARTS if command == "recycle" else drain.PARTS
    again = snapshot or (lambda: read(fleet, sources, parts=parts))
    steps: list[Step] = []
    left: list[Work] | None = None
    interrupted = late = False
    try:
        steps.extend(_steps(command, again(), scope, writer))
        if command == "drain":
            left, late = _wait(again, scope, wait, poll)
    except KeyboardInterrupt:
        interrupted = True
    except Unavailable as error:
        if not steps:
            raise
        steps.append(Step(object="runners", state="failed", message=str(error), fix=error.fix))
    name = program()
    follow = ""
    if interrupted or late:
        follow = f"{name} runners.{command}{flags} --yes goes on"
    if command == "drain":
        follow += f"{'; ' if follow else ''}{name} runners.resume{flags} undoes it"
    return Report(
        command=command,
        stack=stack,
        fleet=fleet.name,
        context=context,
        at=datetime.now(UTC),
        steps=tuple(steps),
        left=None if left is None else tuple(left),
        interrupted=interrupted,
        late=late,
        next=follow,
    )


def _steps(command: Command, snapshot: Snapshot, scope: Scope, writer: Writer | None) -> Iterator[Step]:
    if command == "recycle" or writer is None:
        return recycle.recycle(snapshot, scope, writer)
    return (drain.drain if command == "drain" else drain.resume)(snapshot, scope, writer)


def _wait(again: Callable[[], Snapshot], scope: Scope, wait: float | None, poll: float) -> tuple[list[Work], bool]:
    """Return the runners that are left, and whether that is too many at the deadline."""
    deadline = time.monotonic() + (wait or 0.0)
    errors = console(sys.stderr)
    while True:
        left = drain.left(again(), scope)
        if wait is None or not left:
            return left, False
        if time.monotonic() >= deadline:
            return left, True
        errors.print(f"{len(left)} runners are left, {sum(item.job is not None for item in left)} with a job")
        time.sleep(min(poll, max(0.0, deadline - time.monotonic())))


def _agreed(command: Command, scope: Scope, fleet: Fleet, context: str, json: JsonOutput) -> bool:
    names = ", ".join(fleet.runners[key].scale_set for key in scope.runners) or "no scale set"
    pools = f" and the nodes of {', '.join(scope.pools)}" if scope.pools else ""
    if json.replaces_text or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadFlag("nothing was changed: there is no terminal to ask on\n    fix: add --yes to do it")
    question = printable(f"runners.{command} of {names}{pools} in context {context}? [y/N] ")
    return input(question).strip().lower() in ("y", "yes")


def show(report: Report) -> None:
    """Print a line a step, then what is left."""
    out = console()

    def line(text: str = "") -> None:
        out.print(printable(text), soft_wrap=True, markup=False)

    line(f"runners.{report.command} of {report.stack}  {report.fleet}  context {report.context}")
    for step in report.steps:
        line(f"  {step.state:9}  {step.object}: {step.message}")
        if step.fix:
            line(f"             fix: {step.fix}")
    if not report.steps:
        line("  nothing to do")
    for work_ in report.left or ():
        line(f"  left       {work_.runner}: {work_.job or 'no job'}, {work_.seconds:.0f} s old")
    if report.left == ():
        line("  no runner is left")
    if report.interrupted:
        line("  interrupted; what stands above is done, the rest is not")
    if report.late:
        line("  runners are left at the deadline")
    if report.next:
        line(f"  {report.next}")
