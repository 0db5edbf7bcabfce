"""The work of `inv arc.upgrade`, without Invoke: read, say what changes, ask, do it phase by phase."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from infra import versions
from paddock.errors import printable
from paddock.fleet import load
from paddock.operate.cli.connect import Access, connect, to_change
from paddock.operate.cli.outcome import finish, show_phases
from paddock.operate.cli.progress import asks, progress
from paddock.operate.lifecycle import arc
from paddock.operate.lifecycle.phases import Course, PhaseFailed, Refused, Watch
from paddock.operate.lifecycle.report import Upgrade
from paddock.operate.lifecycle.summary import of_upgrade
from paddock.operate.lifecycle.upgrade import Upgrading
from paddock.operate.snapshot.read import read
from paddock.operate.sources.kubernetes_changes import Changes
from paddock.operate.sources.pulumi import Interrupted, Pulumi, PulumiError
from paddock.operate.sources.unavailable import Unavailable
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, console, json_errors


@json_errors
def run(
    root: Path,
    stack: str,
    access: Access,
    *,
    patience: float,
    dry_run: bool = False,
    yes: bool = False,
    json: JsonOutput = NO_JSON,
    target: str = versions.ARC,
    pulumi: Pulumi | None = None,
    watch: Watch | None = None,
) -> int:
    """Upgrade ARC to the pinned version; return 1 where a phase failed, 130 after Ctrl-C, else 0.

    `patience` is in seconds, for runners to end. Raises FleetError, BadFlag, NoCluster, Refused and OutputError.
    """
    began = time.monotonic()
    fleet = load(root, stack).fleet
    if not fleet.holds("runners"):
        holder = fleet.layers.runners
        where = f"stack {holder} holds them" if holder != "none" else "paddock:layers says runners: none"
        raise Refused(f"stack {stack} has no runners: {where}\n    fix: --stack with the one that has them")
    sources = connect(fleet, access)
    cluster = to_change(fleet, sources)
    engine = pulumi or Pulumi(root, stack)
    flags = f" --stack {stack}" + (f" --context {access.context}" if access.context else "")
    writer = Changes(cluster)

    def outcome(course: Course | None = None) -> Upgrade:
        seconds = time.monotonic() - began
        return of_upgrade(upgrading, plan, course, context=cluster.context, also=also, seconds=seconds, flags=flags)

    try:
        with progress() as notify:
            upgrading = Upgrading(
                fleet,
                stack,
                target,
                lambda: read(fleet, sources, parts=arc.PARTS),
                writer,
                engine,
                notify,
                patience,
                watch or Watch(),
            )
            plan, also = prepare(upgrading)
        if dry_run or plan.nothing:
            result = outcome()
        elif not yes and not _agreed(outcome(), json):
            console(sys.stderr).print("Nothing was changed.")
            return 0
        else:
            with progress() as notify:
                upgrading.notify = notify
                result = outcome(upgrading.run(plan))
    finally:
        writer.close()
    return finish(result, json, lambda: show(result))


def prepare(upgrading: Upgrading) -> tuple[arc.Plan, tuple[str, ...]]:
    """Return what has to be done in the cluster, and what `pulumi up` does beside it. Raises Refused."""
    try:
        plan = upgrading.plan()
        return plan, (upgrading.also() if plan.new_controller or plan.behind else ())
    except (Unavailable, PulumiError, PhaseFailed) as error:
        raise Refused(f"{error}\n    fix: {error.fix}" if error.fix else str(error)) from None
    except Interrupted:
        raise KeyboardInterrupt from None


def _agreed(outcome: Upgrade, json: JsonOutput) -> bool:
    if json.replaces_text or not asks():
        raise BadFlag("nothing was changed: there is no terminal to ask on\n    fix: add --yes to do it")
    show(outcome)
    return input(printable("Go on? [y/N] ")).strip().lower() in ("y", "yes")


def show(outcome: Upgrade) -> None:
    """Print what was there, and a line a phase."""
    out = console()

    def line(text: str = "") -> None:
        out.print(printable(text), soft_wrap=True, markup=False, highlight=False)

    line(f"arc.upgrade of {outcome.stack}  {outcome.fleet}  context {outcome.context}")
    line(f"  controller  {outcome.installed}, pinned {outcome.target}")
    for kind in outcome.absent_crds:
        line(f"  CRD absent  {kind}")
    for scale_set in outcome.sets:
        state = (
            f"{scale_set.version or 'without a version'}, {scale_set.phase or 'no phase'}"
            if scale_set.present
            else "absent"
        )
        line(f"  scale set   {scale_set.name}: {state}{', drained' if scale_set.drained else ''}")
    for runner in outcome.jobs:
        line(f"  has a job   {runner}")
    for text in outcome.also:
        line(f"  pulumi also {text}")
    show_phases(outcome, line)
    if not outcome.phases:
        line("  nothing to do")
