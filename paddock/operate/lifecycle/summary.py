"""Summaries of an upgrade and of a removal: what was there, what was done, and what goes on."""

from __future__ import annotations

from datetime import UTC, datetime

from paddock.errors import program
from paddock.operate.lifecycle import arc, destroy, holdings
from paddock.operate.lifecycle.arc import Plan as UpgradePlan
from paddock.operate.lifecycle.destroy import Destroying
from paddock.operate.lifecycle.destroy import Plan as RemovalPlan
from paddock.operate.lifecycle.phases import Course
from paddock.operate.lifecycle.report import Destroy, Item, Phase, Upgrade
from paddock.operate.lifecycle.upgrade import Upgrading


def of_upgrade(
    upgrading: Upgrading,
    plan: UpgradePlan,
    course: Course | None,
    *,
    context: str,
    also: tuple[str, ...],
    seconds: float,
    flags: str,
) -> Upgrade:
    """Return the outcome; without a course, what would be done."""
    phases = tuple(course.phases) if course else planned_upgrade(plan)
    return Upgrade(
        stack=upgrading.stack,
        fleet=upgrading.fleet.name,
        context=context,
        at=datetime.now(UTC),
        seconds=seconds,
        phases=phases,
        interrupted=bool(course and course.interrupted),
        next=_next(course, flags),
        installed=plan.installed,
        target=plan.target,
        absent_crds=plan.absent_crds,
        sets=plan.sets,
        jobs=plan.jobs,
        also=also,
    )


def planned_upgrade(plan: UpgradePlan) -> tuple[Phase, ...]:
    """Return the phases that an upgrade would have."""
    if plan.nothing:
        return ()
    lines: list[tuple[str, str]] = []
    sets = ", ".join(scale_set.name for scale_set in plan.sets)
    if plan.new_controller or plan.behind:
        lines.append(("drain", f"{sets}; {len(plan.jobs)} runners have a job, and it is waited for"))
    if plan.new_controller:
        lines.append(("CRDs and controller", f"{plan.installed} to {plan.target}"))
        if arc.other_minor(plan.installed, plan.target):
            lines.append(
                ("controller available", "it may delete the scale sets of the old minor; Pulumi makes them anew")
            )
    if plan.behind:
        lines.append(("scale sets", f"{', '.join(plan.behind)} to {plan.target}"))
    lines += [("scale sets served", said_) for said_ in plan.unwell]
    lines.append(("resume", "what the upgrade drained takes jobs again"))
    return tuple(Phase(name=name, state="planned", message=message) for name, message in lines)


def _next(course: Course | None, flags: str) -> str:
    if course is None or not course.stopped:
        return ""
    name = program()
    again = f"{name} {arc.COMMAND}{flags} --yes goes on"
    drained = any(phase.name == "drain" for phase in course.phases)
    return again + (
        f"; until then the scale sets are drained, and {name} runners.resume{flags} undoes that" if drained else ""
    )


def of_removal(
    destroying: Destroying,
    plan: RemovalPlan,
    course: Course | None,
    left: tuple[tuple[Item, ...] | None, tuple[str, ...]],
    *,
    context: str | None,
    seconds: float,
    flags: str,
) -> Destroy:
    """Return the outcome; without a course, what would be done."""
    return Destroy(
        stack=destroying.stack,
        fleet=destroying.fleet.name,
        context=context,
        at=datetime.now(UTC),
        seconds=seconds,
        phases=tuple(course.phases) if course else planned_removal(destroying, plan),
        interrupted=bool(course and course.interrupted),
        next=f"{program()} {destroy.COMMAND}{flags} --yes goes on" if course and course.stopped else "",
        goes=holdings.goes(plan.resources, plan.deleted),
        stays=plan.stays,
        jobs=plan.jobs,
        left=left[0],
        unknown=(*plan.notes, *left[1]),
    )


def planned_removal(destroying: Destroying, plan: RemovalPlan) -> tuple[Phase, ...]:
    """Return the phases that a removal would have."""
    lines: list[tuple[str, str]] = []
    if plan.in_cluster:
        sets = ", ".join(runner.scale_set for runner in destroying.fleet.runners.values()) or "none"
        end = "jobs that run are ended" if destroying.with_running_jobs else "runners are waited for"
        lines += [
            ("drain", sets),
            ("runners end", end),
            ("sign off", f"{sets}: ARC removes runners at GitHub, and its finalizers"),
            ("scale sets", f"releases of {sets}"),
            ("volumes", "claims in the stack's namespaces"),
        ]
    if not plan.nothing:
        lines.append(("the rest", f"{len(plan.deleted)} resources of the state"))
    return tuple(Phase(name=name_, state="planned", message=message) for name_, message in lines)
