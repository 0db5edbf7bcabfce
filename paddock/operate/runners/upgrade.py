"""`runners.upgrade`: ARC is brought to the pinned version, phase by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from infra import versions
from paddock.console.command import command
from paddock.console.output import say
from paddock.console.progress import progress
from paddock.console.project import root
from paddock.console.question import agreed, can_ask
from paddock.errors import program
from paddock.fleet import load
from paddock.operate.connect import connect, to_change
from paddock.operate.parameters import Declined, OfPhases, declined
from paddock.operate.phases import Course, Phase, PhasedWork, Refused, Watch, planned, refusing
from paddock.operate.runners import arc
from paddock.operate.runners.arc import COMMAND, ScaleSet, UpgradePlan
from paddock.operate.runners.upgrading import Upgrading
from paddock.operate.snapshot.read import read
from paddock.operate.sources.kubernetes import Changes
from paddock.pulumi_cli.stack import Pulumi


@dataclass(frozen=True, kw_only=True)
class Upgrade(OfPhases):
    """Parameters of `runners.upgrade`."""


@dataclass(frozen=True, kw_only=True)
class Upgraded(PhasedWork):
    """Report of an upgrade: what was there, and what was done."""

    SCHEMA = "paddock.arc-upgrade/1"
    installed: str
    """Version of the controller before."""
    target: str
    absent_crds: tuple[str, ...] = ()
    """Kinds of ARC that the cluster did not know."""
    sets: tuple[ScaleSet, ...]
    jobs: tuple[str, ...] = ()
    """Runners that had a job before."""
    also: tuple[str, ...] = ()
    """What `pulumi up` changes besides ARC."""

    def text(self) -> Iterator[str]:
        yield self.heading(COMMAND, f"context {self.context}")
        yield f"  controller  {self.installed}, pinned {self.target}"
        yield from (f"  CRD absent  {kind}" for kind in self.absent_crds)
        for one in self.sets:
            there = f"{one.version or 'without a version'}, {one.phase or 'no phase'}" if one.present else "absent"
            yield f"  scale set   {one.name}: {there}{', drained' if one.drained else ''}"
        yield from (f"  has a job   {runner}" for runner in self.jobs)
        yield from (f"  pulumi also {text}" for text in self.also)
        yield from self.phase_lines()
        if not self.phases:
            yield "  nothing to do"


@command()
def upgrade(parameters: Upgrade) -> Upgraded | Declined:
    """Upgrade ARC to the pinned version. Raises FleetError, BadFlag, NoCluster and Refused."""
    return carry_out(parameters, Pulumi(root(), parameters.stack))


def carry_out(
    parameters: Upgrade, pulumi: Pulumi, *, target: str = versions.ARC, watch: Watch | None = None
) -> Upgraded | Declined:
    """Read, say what changes, ask, and upgrade to `target`. Raises what `upgrade` does."""
    began = time.monotonic()
    fleet = load(root(), parameters.stack).fleet
    if not fleet.holds("runners"):
        holder = fleet.layers.runners
        where = f"stack {holder} holds them" if holder != "none" else "paddock:layers says runners: none"
        raise Refused(f"stack {parameters.stack} has no runners: {where}\n    fix: --stack with the one that has them")
    sources = connect(fleet, parameters)
    cluster = to_change(fleet, sources)

    def report(course: Course | None = None) -> Upgraded:
        seconds = time.monotonic() - began
        return reported(upgrading, plan, course, also, context=cluster.context, seconds=seconds, flags=parameters.again)

    with closing(Changes(cluster)) as writer:
        with progress() as shown:
            upgrading = Upgrading(
                fleet,
                parameters.stack,
                target,
                lambda: read(fleet, sources, parts=arc.PARTS),
                writer,
                pulumi,
                shown.now,
                parameters.timeout,
                watch or Watch(),
            )
            plan, also = prepare(upgrading)
        if parameters.dry_run or plan.nothing:
            return report()
        if can_ask(parameters.json) and not parameters.yes:
            say(parameters.json, *report().text())
        if not agreed("Go on?", parameters.json, yes=parameters.yes):
            return declined()
        with progress() as shown:
            upgrading.notify = shown.now
            return report(upgrading.run(plan))


def prepare(upgrading: Upgrading) -> tuple[UpgradePlan, tuple[str, ...]]:
    """Return what has to be done in the cluster, and what `pulumi up` does besides. Raises Refused."""
    with refusing():
        plan = upgrading.plan()
        return plan, (upgrading.also() if plan.new_controller or plan.behind else ())


def reported(
    upgrading: Upgrading,
    plan: UpgradePlan,
    course: Course | None,
    also: tuple[str, ...] = (),
    *,
    context: str,
    seconds: float,
    flags: str,
) -> Upgraded:
    """Return the outcome; without a course, what would be done."""
    return Upgraded(
        stack=upgrading.stack,
        fleet=upgrading.fleet.name,
        context=context,
        at=datetime.now(UTC),
        seconds=seconds,
        phases=tuple(course.phases) if course else _phases(plan),
        interrupted=bool(course and course.interrupted),
        next=_next(course, flags),
        installed=plan.installed,
        target=plan.target,
        absent_crds=plan.absent_crds,
        sets=plan.sets,
        jobs=plan.jobs,
        also=also,
    )


def _phases(plan: UpgradePlan) -> tuple[Phase, ...]:
    """Return the phases that an upgrade would have."""
    if plan.nothing:
        return ()
    phases: list[tuple[str, str]] = []
    if plan.new_controller or plan.behind:
        sets = ", ".join(scale_set.name for scale_set in plan.sets)
        phases.append(("drain", f"{sets}; {len(plan.jobs)} runners have a job, and it is waited for"))
    if plan.new_controller:
        phases.append(("CRDs and controller", f"{plan.installed} to {plan.target}"))
        if arc.other_minor(plan.installed, plan.target):
            loss = "it may delete the scale sets of the old minor; Pulumi makes them again"
            phases.append(("controller available", loss))
    if plan.behind:
        phases.append(("scale sets", f"{', '.join(plan.behind)} to {plan.target}"))
    phases += [("scale sets served", reason) for reason in plan.unwell]
    phases.append(("resume", "what the upgrade drained takes jobs again"))
    return planned(phases)


def _next(course: Course | None, flags: str) -> str:
    if course is None or not course.stopped:
        return ""
    again = f"{program()} {COMMAND}{flags} --yes continues"
    if not any(phase.name == "drain" for phase in course.phases):
        return again
    return f"{again}; until then the scale sets are drained, and {program()} runners.resume{flags} undoes that"
