"""`images.mirror`: the commands that copy a stack's charts and images to its mirror.

It needs what `plan` needs: neither credentials nor a network.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from json import dumps, loads
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from infra.helm.charts import CHARTS, Chart
from paddock.console.command import command
from paddock.console.project import OfStack, root
from paddock.console.report import Report
from paddock.fleet import Mirror, Stack, load
from paddock.fleet.model.mirror import is_folder
from paddock.fleet.stackfile.configuration import FLEET

if TYPE_CHECKING:
    from paddock.plan.engine.graph import Graph


def images(graph: Graph) -> tuple[str, ...]:
    """Names of all images that a graph's pods and charts pull, sorted.

    Without those of EKS's add-ons and AMIs, and those that workflows name.
    """
    from paddock.plan.rules.base import Context
    from paddock.plan.rules.mirror import images as pulled

    return tuple(sorted({pull.image for pull in pulled(Context(graph))}))


def charts(graph: Graph) -> tuple[Chart, ...]:
    """Return all charts that a graph installs, sorted by name."""
    from paddock.plan.engine.resource_types import RELEASE
    from paddock.plan.rules.inputs.pods import chart

    return tuple(CHARTS[name] for name in sorted({chart(release) for release in graph.of_type(RELEASE)}))


def commands(mirror: Mirror, graph: Graph) -> Iterator[str]:
    """Yield shell commands that copy what a graph pulls from its makers to where the mirror says, else comments."""
    for chart_ in charts(graph):
        yield _chart(chart_, mirror)
    for name in images(graph):
        copy = mirror.image(name)
        yield f"crane copy {name} {copy}" if copy != name else f"# {name}: not from a mirror"


def _chart(chart: Chart, mirror: Mirror) -> str:
    target = mirror.chart(chart.name, chart.version)
    if target is None:
        return f"# {chart.pull}: not from a mirror"
    if is_folder(target):
        return f"{chart.pull} --destination {shlex.quote(str(PurePosixPath(target).parent))}"
    if target.startswith("oci://"):
        return f"{chart.pull} && helm push {chart.name}-{chart.version}.tgz {target.rpartition('/')[0]}"
    return f"{chart.pull}  # and add it to the repository {target}"


def graph_without_mirror(stack: Stack) -> Graph:
    """Return what the stack would be if everything came from its makers. Raises PlanError."""
    from paddock.plan.engine.program import plan_graph

    fleet = {key: value for key, value in loads(stack.config[FLEET]).items() if key != "mirror"}
    return plan_graph(replace(stack, config={**stack.config, FLEET: dumps(fleet)}))


@dataclass(frozen=True, kw_only=True)
class MirrorCopies(Report):
    """Charts and images to copy, and where to; None where a mirror has no place for it."""

    SCHEMA = 1
    charts: tuple[dict[str, str | None], ...]
    images: tuple[dict[str, str | None], ...]
    commands: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, "charts": list(self.charts), "images": list(self.images)}

    def text(self) -> tuple[str, ...]:
        return self.commands


@command()
def mirror(parameters: OfStack) -> MirrorCopies:
    """Return the commands, and what they copy. Raises FleetError and PlanError."""
    stack = load(root(), parameters.stack)
    target, graph = stack.fleet.mirror, graph_without_mirror(stack)
    return MirrorCopies(
        charts=tuple(
            {"name": chart.name, "version": chart.version, "to": target.chart(chart.name, chart.version)}
            for chart in charts(graph)
        ),
        images=tuple(
            {"from": image, "to": None if target.image(image) == image else target.image(image)}
            for image in images(graph)
        ),
        commands=tuple(commands(target, graph)),
    )
