"""The work of `inv fleet.destroy`, without Invoke: show what goes and stays, ask, remove it phase by phase."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from paddock.errors import PaddockError, printable
from paddock.fleet import Fleet, FleetError, Stack, load
from paddock.operate.cli.connect import Access, NoCluster, connect, to_change
from paddock.operate.cli.outcome import finish, show_phases
from paddock.operate.cli.progress import asks, progress
from paddock.operate.lifecycle.destroy import PARTS, Cluster, Destroying, Plan
from paddock.operate.lifecycle.holdings import NEEDED
from paddock.operate.lifecycle.leftovers import FREE, IN_STATE
from paddock.operate.lifecycle.phases import Course, Refused, Watch
from paddock.operate.lifecycle.report import Destroy, Item
from paddock.operate.lifecycle.summary import of_removal
from paddock.operate.snapshot.read import Sources, read
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.kubernetes_changes import Changes
from paddock.operate.sources.pulumi import Interrupted, Pulumi, PulumiError, Resource
from paddock.operate.sources.unavailable import Unavailable
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, console, json_errors


@json_errors
def run(
    root: Path,
    stack: str,
    access: Access,
    *,
    patience: float,
    with_running_jobs: bool = False,
    with_protected: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    json: JsonOutput = NO_JSON,
    pulumi: Pulumi | None = None,
    watch: Watch | None = None,
) -> int:
    """Remove a fleet; return 1 where a phase failed or AWS cannot say what is left, 130 after Ctrl-C, else 0.

    `patience` is in seconds, for runners to end. Raises FleetError, BadFlag, Refused and OutputError.
    """
    began = time.monotonic()
    loaded = load(root, stack)
    engine = pulumi or Pulumi(root, stack)
    sources, writer, unreachable = _connect(loaded.fleet, access)
    flags = f" --stack {stack}" + (f" --context {access.context}" if access.context else "")
    flags += " --with-running-jobs" * with_running_jobs + " --with-protected" * with_protected
    context = sources.kubernetes.cluster.context if writer and sources.kubernetes else None
    built_on, notes = others(root, loaded, engine)
    try:
        with progress() as notify:
            destroying = Destroying(
                loaded.fleet,
                stack,
                engine,
                _cluster(loaded, sources, writer),
                sources.aws,
                notify,
                patience,
                unreachable,
                with_protected,
                with_running_jobs,
                built_on,
                watch or Watch(),
            )
            plan = prepare(destroying, notes)

        def outcome(course: Course | None, left: tuple[tuple[Item, ...] | None, tuple[str, ...]]) -> Destroy:
            seconds = time.monotonic() - began
            return of_removal(destroying, plan, course, left, context=context, seconds=seconds, flags=flags)

        if dry_run:
            return finish(result := outcome(None, (None, ())), json, lambda: show(result))
        if not plan.nothing and not yes and not _agreed(outcome(None, (None, ())), stack, json):
            console(sys.stderr).print("Nothing was changed.")
            return 0
        with progress() as notify:
            destroying.notify = notify
            course = destroying.run(plan)
            notify("what is left in AWS ...")
            result = outcome(course, destroying.left())
    finally:
        if writer:
            writer.close()
    return finish(result, json, lambda: show(result))


def prepare(destroying: Destroying, notes: Sequence[str] = ()) -> Plan:
    """Return what goes and stays. Raises Refused."""
    try:
        plan = destroying.plan()
    except (Unavailable, PulumiError) as error:
        raise Refused(f"{error}\n    fix: {error.fix}" if error.fix else str(error)) from None
    except Interrupted:
        raise KeyboardInterrupt from None
    return replace(plan, notes=tuple(notes))


def others(root: Path, loaded: Stack, engine: Pulumi) -> tuple[dict[str, Callable[[], Sequence[Resource]]], list[str]]:
    """Return the stacks of the folder whose layers name this one, and the files that cannot be read."""
    result: dict[str, Callable[[], Sequence[Resource]]] = {}
    unread = []
    for path in sorted(root.glob("Pulumi.*.yaml")):
        other = path.name.removeprefix("Pulumi.").removesuffix(".yaml")
        if other == loaded.name:
            continue
        try:
            layers = load(root, other).fleet.layers
        except FleetError:
            unread.append(f"whether stack {other} stands on this one: {path.name} cannot be read")
            continue
        holders = {layers.images, layers.cluster, layers.runners}
        if any(holder.split("/")[-2:] == [loaded.project, loaded.name] for holder in holders):
            there = Pulumi(engine.folder, other, program=engine.program, environment=engine.environment)
            result[other] = lambda there=there: there.resources() if there.exists() else ()  # type: ignore[misc]  # mypy infers no default
    return result, unread


def _connect(fleet: Fleet, access: Access) -> tuple[Sources, Changes | None, PaddockError | None]:
    """Return the readers, and the writer or why there is none: a stack whose cluster is gone needs none."""
    sources = Sources(aws=AwsReader(fleet.region, access.clients) if fleet.owns_nodes else None)
    try:
        sources = connect(fleet, access)
        return sources, Changes(to_change(fleet, sources)), None
    except (NoCluster, BadFlag) as error:
        return sources, None, error


def _cluster(loaded: Stack, sources: Sources, writer: Changes | None) -> Cluster | None:
    reader = sources.kubernetes
    if writer is None or reader is None:
        return None
    return Cluster(lambda: read(loaded.fleet, sources, parts=PARTS), reader.all, writer)


def _agreed(outcome: Destroy, stack: str, json: JsonOutput) -> bool:
    if json.replaces_text or not asks():
        raise BadFlag("nothing was changed: there is no terminal to ask on\n    fix: add --yes to do it")
    show(outcome)
    return input(printable(f"Type the stack's name, {stack}, to remove it: ")).strip() == stack


def show(outcome: Destroy) -> None:
    """Print what goes, what stays, a line a phase, and what AWS still has."""
    out = console()

    def line(text: str = "") -> None:
        out.print(printable(text), soft_wrap=True, markup=False, highlight=False)

    line(f"fleet.destroy of {outcome.stack}  {outcome.fleet}  context {outcome.context or 'none'}")
    line(f"  goes        {_goes(outcome)}")
    folded = [item for item in outcome.stays if item.reason == NEEDED and item.cost == FREE]
    for item in outcome.stays:
        if item not in folded:
            _item(line, "stays", item)
    if folded:
        kinds = Counter(item.what.partition(" (")[0].rpartition(" ")[0] for item in folded)
        names = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        line(f"  stays       {len(folded)} free things that what is protected needs: {names}")
    for job in outcome.jobs:
        line(f"  has a job   {job}")
    show_phases(outcome, line)
    known = [item for item in outcome.left or () if item.reason.startswith(IN_STATE)]
    for item in outcome.left or ():
        if item not in known:
            _item(line, "left", item)
    if outcome.left is not None:
        costs = [item.usd_per_month for item in outcome.left]
        month = f"{'at least ' if None in costs else ''}{sum(cost or 0 for cost in costs):.2f} USD a month"
        line(f"  AWS has {len(costs)} things with the tag paddock:fleet, {len(known)} of which stay as said: {month}")
        line("  IAM roles are not in AWS's tag API; those of the stack are in its state")
    for text in outcome.unknown:
        line(f"  UNKNOWN     {text}")


def _goes(outcome: Destroy) -> str:
    shown = sorted(outcome.goes.items(), key=lambda entry: (-entry[1], entry[0]))
    names = ", ".join(f"{count} {type_.rpartition(':')[2]}" for type_, count in shown)
    return f"{sum(outcome.goes.values())} resources: {names}" if shown else "nothing of the stack's state"


def _item(line: Callable[[str], None], word: str, item: Item) -> None:
    line(f"  {word:11} {item.what}: {item.reason}{f'; {item.cost}' if item.cost else ''}")
    if item.removal:
        line(f"              removed by: {item.removal}")
