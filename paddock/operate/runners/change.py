"""A change of a stack's runners: which ones, a question, steps, and what is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from paddock.console.output import BadFlag
from paddock.console.parameters import one_of, parameter
from paddock.console.progress import progress
from paddock.console.project import root
from paddock.console.question import agreed
from paddock.errors import program
from paddock.fleet import Fleet, load
from paddock.operate.connect import connect, to_change
from paddock.operate.parameters import Declined, OfChange, declined
from paddock.operate.phases import refusing
from paddock.operate.runners import draining
from paddock.operate.runners.draining import Scope, Writer
from paddock.operate.runners.report import Change, Command, Left, RunnersChanged
from paddock.operate.snapshot.model import Snapshot
from paddock.operate.snapshot.read import read
from paddock.operate.sources.kubernetes import Changes
from paddock.operate.sources.unavailable import Unavailable

POLL = 10.0
"""Seconds from one look at the runners to the next."""
Act = Callable[[Snapshot, Scope, Writer], Iterator[Change]]
"""Changes runners as a snapshot has them, and yields each step when it is done."""


@dataclass(frozen=True, kw_only=True)
class OfRunners(OfChange):
    """Parameters of a command that changes runners."""

    runner: str = parameter("", "a runner of the stack file, or its scale set; by default every one")


@dataclass(frozen=True, kw_only=True)
class OfRunnersOrPool(OfRunners):
    """Parameters of a command that changes runners, and the nodes of a pool."""

    pool: str = parameter("", "a pool: every runner on it, and its nodes")


def change(
    command: Command,
    parameters: OfRunners,
    act: Act,
    parts: Sequence[str],
    *,
    wait: float | None = None,
    ask: bool = True,
) -> RunnersChanged | Declined:
    """Ask, change the runners of a stack, and report; return the exit code where the person declines.

    `parts` are those of the snapshot that `act` needs, `wait` is the deadline of a drain in seconds. Raises FleetError,
    BadFlag, NoCluster, NotDrained and Refused.
    """
    fleet = load(root(), parameters.stack).fleet
    pool = parameters.pool if isinstance(parameters, OfRunnersOrPool) else ""
    scope = scope_of(fleet, command, parameters.runner, pool)
    sources = connect(fleet, parameters)
    cluster = to_change(fleet, sources)
    names = ", ".join(fleet.runners[key].scale_set for key in scope.runners) or "no scale set"
    pools = f" and the nodes of {', '.join(scope.pools)}" if scope.pools else ""
    question = f"{command.capitalize()} {names}{pools} in context {cluster.context}?"
    if ask and not agreed(question, parameters.json, yes=parameters.yes):
        return declined()
    flags = (f" --runner {parameters.runner}" if parameters.runner else "") + (f" --pool {pool}" if pool else "")
    with closing(Changes(cluster)) as writer, refusing():
        return work(
            command,
            fleet,
            lambda: read(fleet, sources, parts=parts),
            lambda snapshot: act(snapshot, scope, writer),
            scope if command == "drain" else None,
            wait,
            about={"stack": parameters.stack, "context": cluster.context},
            flags=flags + parameters.again,
        )


def work(
    command: Command,
    fleet: Fleet,
    take: Callable[[], Snapshot],
    act: Callable[[Snapshot], Iterator[Change]],
    leaving: Scope | None,
    wait: float | None,
    *,
    about: Mapping[str, str],
    flags: str = "",
    poll: float = POLL,
) -> RunnersChanged:
    """Change runners, and report those of `leaving` that are left. Raises what `act` raises before its first step."""
    steps: list[Change] = []
    left: tuple[Left, ...] | None = None
    interrupted = late = False
    try:
        steps.extend(act(take()))
        if leaving:
            left, late = _left(take, leaving, wait, poll)
    except KeyboardInterrupt:
        interrupted = True
    except Unavailable as error:
        if not steps:
            raise
        steps.append(Change(object="runners", state="failed", message=str(error), fix=error.fix))
    following = [f"{program()} runners.{command}{flags} --yes continues"] if interrupted or late else []
    following += [f"{program()} runners.resume{flags} undoes it"] if command == "drain" else []
    return RunnersChanged(
        **about,
        fleet=fleet.name,
        command=command,
        at=datetime.now(UTC),
        steps=tuple(steps),
        left=left,
        interrupted=interrupted,
        late=late,
        next="; ".join(following),
    )


def _left(take: Callable[[], Snapshot], scope: Scope, wait: float | None, poll: float) -> tuple[tuple[Left, ...], bool]:
    """Return the runners that are left, at the latest at the deadline, and whether that is too many."""
    deadline = time.monotonic() + (wait or 0.0)
    with progress() as shown:
        while True:
            left = draining.left(take(), scope)
            late = time.monotonic() >= deadline
            if wait is None or not left or late:
                return tuple(left), wait is not None and bool(left)
            shown.now(f"{len(left)} runners are left, {sum(item.job is not None for item in left)} with a job")
            time.sleep(min(poll, max(0.0, deadline - time.monotonic())))


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
    return BadFlag(
        f"--{flag} {value}: not in the stack file\n    expected: {one_of(value, names)}\n    fix: {program()} status"
    )
