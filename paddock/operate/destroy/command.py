"""`destroy`: a fleet is removed phase by phase, and what stays is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from paddock.console.command import command
from paddock.console.output import BadFlag, say
from paddock.console.parameters import parameter
from paddock.console.progress import progress
from paddock.console.project import root
from paddock.console.question import can_ask, typed
from paddock.errors import PaddockError, program
from paddock.fleet import Fleet, FleetError, Stack, load
from paddock.kubernetes.errors import KubeconfigError
from paddock.operate.connect import NoCluster, connect, to_change
from paddock.operate.destroy import holdings
from paddock.operate.destroy.destroy import COMMAND, PARTS, Cluster, Destroying, RemovalPlan
from paddock.operate.destroy.report import Destroyed, Item
from paddock.operate.parameters import Declined, OfPhases, declined
from paddock.operate.phases import Course, Phase, Watch, planned, refusing
from paddock.operate.snapshot.read import Sources, read
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.kubernetes import Changes
from paddock.pulumi_cli.stack import Pulumi, Resource

Left = tuple[tuple[Item, ...] | None, tuple[str, ...]]
"""What AWS still has, None where it was not asked; and what could not be read."""


_LAYERS: tuple[Literal["images", "cluster", "runners"], ...] = ("images", "cluster", "runners")


@dataclass(frozen=True, kw_only=True)
class Destroy(OfPhases):
    """Parameters of `destroy`."""

    with_running_jobs: bool = parameter(False, "end jobs that run, instead of refusing")
    with_protected: bool = parameter(
        False, "remove what is protected too: cluster, VPC, keys, repositories without images"
    )

    @property
    def again(self) -> str:
        jobs, protected = self.with_running_jobs, self.with_protected
        return super().again + " --with-running-jobs" * jobs + " --with-protected" * protected


@command()
def destroy(parameters: Destroy) -> Destroyed | Declined:
    """Remove a fleet. Raises FleetError, BadFlag and Refused."""
    return carry_out(parameters, Pulumi(root(), parameters.stack))


def carry_out(parameters: Destroy, pulumi: Pulumi, watch: Watch | None = None) -> Destroyed | Declined:
    """Show what goes and stays, ask, and remove it. Raises what `destroy` does."""
    began = time.monotonic()
    stack = load(root(), parameters.stack)
    sources, writer, unreachable = _connect(stack.fleet, parameters)
    built_on, namesakes, notes = others(root(), stack, pulumi)

    def report(course: Course | None = None, left: Left = (None, ())) -> Destroyed:
        context = sources.kubernetes.cluster.context if writer and sources.kubernetes else None
        seconds = time.monotonic() - began
        return reported(destroying, plan, course, left, context=context, seconds=seconds, flags=parameters.again)

    with ExitStack() as closed:
        if writer:
            closed.enter_context(closing(writer))
        with progress() as shown:
            destroying = Destroying(
                stack.fleet,
                parameters.stack,
                pulumi,
                _cluster(stack, sources, writer),
                sources.aws,
                shown.now,
                parameters.timeout,
                unreachable,
                parameters.with_protected,
                parameters.with_running_jobs,
                built_on,
                namesakes,
                watch or Watch(),
            )
            plan = prepare(destroying)
            plan = replace(plan, notes=(*plan.notes, *notes))
            if parameters.dry_run:
                shown.now("reading what would be left in AWS ...")
                return report(left=destroying.left(plan, planned=True))
        if not plan.nothing:
            if can_ask(parameters.json) and not parameters.yes:
                say(parameters.json, *report().text())
            question = f"Type the stack's name, {parameters.stack}, to remove it:"
            if not typed(question, parameters.stack, parameters.json, yes=parameters.yes):
                return declined()
        with progress() as shown:
            destroying.notify = shown.now
            course = destroying.run(plan)
            if course.interrupted:
                return report(course)
            shown.now("reading what is left in AWS ...")
            return report(course, destroying.left(plan))


def prepare(destroying: Destroying) -> RemovalPlan:
    """Return what goes and stays. Raises Refused."""
    with refusing():
        return destroying.plan()


def others(
    root: Path, stack: Stack, pulumi: Pulumi
) -> tuple[dict[str, Callable[[], Sequence[Resource]]], list[str], list[str]]:
    """Return the stacks of the folder whose layers name this one, those whose fleet has its name, and unread files."""
    result: dict[str, Callable[[], Sequence[Resource]]] = {}
    namesakes, unread = [], []
    for path in sorted(root.glob("Pulumi.*.yaml")):
        other = path.name.removeprefix("Pulumi.").removesuffix(".yaml")
        if other == stack.name:
            continue
        try:
            fleet = load(root, other).fleet
        except FleetError:
            unread.append(f"whether stack {other} is built on this one: {path.name} cannot be read")
            continue
        same = (fleet.name, fleet.region) == (stack.fleet.name, stack.fleet.region)
        if same and any(fleet.holds(layer) and stack.fleet.holds(layer) for layer in _LAYERS):
            namesakes.append(other)
        holders = {fleet.layers.images, fleet.layers.cluster, fleet.layers.runners}
        if any(holder.split("/")[-2:] == [stack.project, stack.name] for holder in holders):
            there = Pulumi(pulumi.folder, other, program=pulumi.program, environment=pulumi.environment)
            result[other] = lambda there=there: there.resources() if there.exists() else ()  # type: ignore[misc]  # mypy infers no default
    return result, namesakes, unread


def _connect(fleet: Fleet, parameters: Destroy) -> tuple[Sources, Changes | None, PaddockError | None]:
    """Return the readers, and the writer or why there is none: a stack whose cluster is gone needs none."""
    sources = Sources(aws=AwsReader(fleet.region) if fleet.owns_nodes else None)
    try:
        sources = connect(fleet, parameters)
        return sources, Changes(to_change(fleet, sources)), None
    except (NoCluster, BadFlag, KubeconfigError) as error:
        return sources, None, error


def _cluster(stack: Stack, sources: Sources, writer: Changes | None) -> Cluster | None:
    reader = sources.kubernetes
    if writer is None or reader is None:
        return None
    return Cluster(lambda: read(stack.fleet, sources, parts=PARTS), reader.all, writer)


def reported(
    destroying: Destroying,
    plan: RemovalPlan,
    course: Course | None,
    left: Left,
    *,
    context: str | None,
    seconds: float,
    flags: str,
) -> Destroyed:
    """Return the outcome; without a course, what would be done."""
    return Destroyed(
        stack=destroying.stack,
        fleet=destroying.fleet.name,
        context=context,
        at=datetime.now(UTC),
        seconds=seconds,
        phases=tuple(course.phases) if course else _phases(destroying, plan),
        interrupted=bool(course and course.interrupted),
        next=f"{program()} {COMMAND}{flags} --yes continues" if course and course.stopped else "",
        goes=holdings.goes(plan.resources, plan.deleted),
        stays=plan.stays,
        jobs=plan.jobs,
        left=left[0],
        region=destroying.fleet.region,
        unknown=(*plan.notes, *left[1]),
    )


def _phases(destroying: Destroying, plan: RemovalPlan) -> tuple[Phase, ...]:
    """Return the phases that a removal would have."""
    phases: list[tuple[str, str]] = []
    if plan.in_cluster:
        sets = ", ".join(runner.scale_set for runner in destroying.fleet.runners.values()) or "none"
        phases += [
            ("drain", sets),
            ("runners end", "jobs that run are ended" if destroying.with_running_jobs else "runners are waited for"),
            ("sign off", f"{sets}: ARC removes runners at GitHub, and its finalizers"),
            ("scale sets", f"releases of {sets}"),
            ("volumes", "claims in the stack's namespaces"),
        ]
    if not plan.nothing:
        phases.append(("the rest", f"{len(plan.deleted)} resources of the state"))
    return planned(phases)
